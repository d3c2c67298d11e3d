"""Makes a machine, once: whatever breaks in between, the same order never has two.

The API knows no idempotency key. The record is on the disk before the request leaves, the request is sent once, and
what it made is found by its tag, in both listings. Where nobody can tell, the order counts as a machine for a quarter
of an hour, and no other is made for its run. Of two droplets with the same tag, which only two computers can make, the
older stays.
"""

from __future__ import annotations

import logging
import secrets
from dataclasses import replace
from typing import TYPE_CHECKING

from orchestrator.adapters.host_key import HostKey, make_host_key
from orchestrator.adapters.own_address import ask_own_network
from orchestrator.adapters.patience import wait_until
from orchestrator.adapters.providers.digitalocean.belongings import ensure_belongings
from orchestrator.adapters.providers.digitalocean.creating import action_of, await_created
from orchestrator.adapters.providers.digitalocean.droplets import (
    Droplet,
    droplets_of_machine,
    parse_droplet,
)
from orchestrator.adapters.providers.digitalocean.ending_droplets import end_droplet, still_shown
from orchestrator.adapters.providers.digitalocean.failures import ApiError, RefusedError, UnclearError
from orchestrator.adapters.providers.digitalocean.images import find_image
from orchestrator.adapters.providers.digitalocean.keys import send_with_key
from orchestrator.adapters.providers.digitalocean.ordered import boot_spec, render_request
from orchestrator.adapters.providers.digitalocean.record import MachineRecord
from orchestrator.adapters.providers.digitalocean.refusals import translate_refusal
from orchestrator.adapters.providers.digitalocean.settling import (
    complete_droplet,
    find_earlier,
    note_droplet,
    refuse_unclear,
    settle_twins,
    unclear_error,
)
from orchestrator.adapters.providers.digitalocean.sizes import Size, parse_size
from orchestrator.adapters.providers.digitalocean.view import SETTLES_IN
from orchestrator.adapters.providers.digitalocean.volumes import (
    DataVolume,
    drop_new,
    ready_volumes,
)
from orchestrator.core.errors import BadRequestError, KedgeError, NoCapacityError, StillBillingError
from orchestrator.core.network import parse_address_range

if TYPE_CHECKING:
    from orchestrator.adapters.providers.digitalocean.api import Json
    from orchestrator.adapters.providers.digitalocean.images import Image
    from orchestrator.adapters.providers.digitalocean.tools import Tools
    from orchestrator.core.machine import MachineOrder

_log = logging.getLogger(__name__)


def create_droplet(tools: Tools, order: MachineOrder) -> Droplet:
    """Make the order's droplet, or find the one that is there already, and see that it is complete.

    Raises:
        NoCapacityError: it can't be had now; nothing was made.
        StillBillingError: something may have been made, and the API doesn't tell.
        KedgeError: anything else; nothing is left.
    """
    tools.refuse_other_account(order.run_id)
    earlier = tools.records.machine(order.id)
    droplet = find_earlier(tools, order.id, earlier)
    if droplet is None:
        refuse_unclear(tools, order.run_id)
        return _Creation(tools, order, earlier).launch()
    try:
        complete_droplet(tools, droplet)
        await_created(tools, order, droplet)
    except NoCapacityError as err:
        _end_again(tools, order, droplet, err)
        raise
    return droplet


class _Creation:
    """One attempt at one order."""

    def __init__(self, tools: Tools, order: MachineOrder, earlier: MachineRecord | None) -> None:
        self._tools = tools
        self._order = order
        self._earlier = earlier

    def launch(self) -> Droplet:
        tools, order = self._tools, self._order
        size = self._size()
        image = find_image(tools.api, order.image_id, size, order.region)
        volumes = ready_volumes(tools.api, order, tools.clock)
        try:
            return self._complete(self._ask(size, image, volumes))
        except StillBillingError:
            raise
        except KedgeError:
            # The next offer may be in another region, where a volume that is made now could not go.
            drop_new(tools.api, volumes, tools.clock)
            raise

    def _ask(self, size: Size, image: Image, volumes: tuple[DataVolume, ...]) -> Droplet:
        tools, order = self._tools, self._order
        ssh_from = parse_address_range(order.ssh_from) or ask_own_network()
        belongings = ensure_belongings(tools, order, ssh_from)
        key = make_host_key()
        record = self._record(key, size.gpus)
        spec = boot_spec(order, tools.site.name, key, tools.ending, volumes)
        request = render_request(order, image=image, key=belongings.key, attempt=record.attempt, spec=spec)
        request["volumes"] = [volume.id for volume in volumes]
        try:
            return send_with_key(tools.api, tools.clock, order.authorized_key, lambda: self._send(record, request))
        except RefusedError as err:
            raise translate_refusal(err, order) from err

    def _send(self, record: MachineRecord, request: Json) -> Droplet:
        """Send the request once; where its outcome is unclear, find what it has made."""
        tools = self._tools
        now = tools.clock.now()
        # Until an answer has been read: this process may be gone before one comes.
        record = replace(record, asked_at=now, unclear_since=now)
        tools.records.keep_machine(record)
        what, operation = f"machine {record.id} can't be created", tools.api.client.droplets.create
        try:
            answer = tools.api.create(what, operation, request)
        except RefusedError:
            self._restore_record()
            raise
        except UnclearError as err:
            record = replace(record, unclear_since=tools.clock.now())
            tools.records.keep_machine(record)
            return self._look_up(record, err)
        tools.records.keep_machine(replace(record, action_id=action_of(answer)))
        return parse_droplet(answer["droplet"])

    def _look_up(self, record: MachineRecord, cause: UnclearError) -> Droplet:
        """Find what a request with an unclear outcome has made; another computer's will do if it made nothing."""
        found: list[Droplet] = []

        def is_listed() -> bool:
            found[:] = droplets_of_machine(self._tools.api, record.id)
            return any(each.order.attempt == record.attempt for each in found)

        try:
            wait_until(self._tools.clock, SETTLES_IN, is_listed)
        except ApiError as err:
            raise unclear_error(record, cause.why) from err
        if not found:
            raise unclear_error(record, cause.why) from cause
        return next((each for each in found if each.order.attempt == record.attempt), found[0])

    def _complete(self, droplet: Droplet) -> Droplet:
        """See that there is one droplet, and that it has what it needs; else it is ended again."""
        tools, order = self._tools, self._order
        note_droplet(tools, droplet)
        try:
            stays = settle_twins(tools, order.id, droplet) or droplet
            if stays.order.attempt != self._attempt:
                # Another computer's: it shows that one's host key.
                self._restore_record()
            complete_droplet(tools, stays)
            await_created(tools, order, stays)
        except KedgeError as err:
            _end_again(tools, order, droplet, err)
            raise
        return stays

    @property
    def _attempt(self) -> str:
        record = self._tools.records.machine(self._order.id)
        return record.attempt if record else ""

    def _record(self, key: HostKey, gpus: int) -> MachineRecord:
        order = self._order
        return MachineRecord(
            id=order.id,
            run_id=order.run_id,
            region=order.region,
            attempt=secrets.token_hex(6),
            host_key=key.public,
            asked_at=self._tools.clock.now(),
            lifetime_seconds=order.lifetime_seconds,
            usd_per_hour=order.usd_per_hour,
            account=self._tools.account.id,
            volumes=order.volumes,
            gpus=gpus,
        )

    def _restore_record(self) -> None:
        if self._earlier is not None:
            self._tools.records.keep_machine(self._earlier)
        else:
            self._tools.records.forget_machine(self._order.id)

    def _size(self) -> Size:
        api, order = self._tools.api, self._order
        listed = api.pages("the sizes can't be listed", api.client.sizes.list, "sizes")
        found = next((fields for fields in listed if fields["slug"] == order.instance_type), None)
        if found is None:
            raise BadRequestError(
                f"{api.site.name} has no size {order.instance_type}", fix="choose another --instance-type"
            )
        return parse_size(found)


def _end_again(tools: Tools, order: MachineOrder, droplet: Droplet, cause: KedgeError) -> None:
    """End a droplet of this computer's that can't be completed, or that is not coming to be."""
    record = tools.records.machine(order.id)
    if record is None or record.attempt != droplet.order.attempt:
        return
    _log.warning("machine %s is ended again: %s", order.id, cause.what)
    try:
        is_gone = end_droplet(tools, droplet.id, record)
    except ApiError as err:
        raise StillBillingError(
            f"machine {order.id} can't be completed, nor ended",
            why=f"{cause.what}; then: {err.why}",
            fix=f"run `kedge teardown {order.run_id}`",
        ) from err
    tools.records.keep_machine(replace(record, ended=True))
    if not is_gone:
        raise still_shown(order.id, [droplet.id]) from cause
