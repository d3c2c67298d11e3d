"""Makes a machine, once: whatever breaks in between, the same order never has two.

The record is on the disk before the request leaves. The request carries a token; what it made is found by its tags.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from orchestrator.adapters.aws_sdk import translate
from orchestrator.adapters.host_key import HostKey, make_host_key
from orchestrator.adapters.patience import wait_until
from orchestrator.adapters.providers.aws.attaching import DataVolume
from orchestrator.adapters.providers.aws.belongings import ensure_belongings, note_volumes, profile_name
from orchestrator.adapters.providers.aws.closed import is_closed
from orchestrator.adapters.providers.aws.completing import complete_instance
from orchestrator.adapters.providers.aws.images import find_image
from orchestrator.adapters.providers.aws.launch import (
    LaunchParts,
    UnclearOutcomeError,
    is_unknown_yet,
    launch,
    render_request,
)
from orchestrator.adapters.providers.aws.market import RegionReader
from orchestrator.adapters.providers.aws.naming import token
from orchestrator.adapters.providers.aws.ordered import boot_spec, offer_of
from orchestrator.adapters.providers.aws.own_network import find_own_network, subnet_for
from orchestrator.adapters.providers.aws.ownership import refuse_other_account
from orchestrator.adapters.providers.aws.record import MachineRecord
from orchestrator.adapters.providers.aws.recorded import find_untagged
from orchestrator.adapters.providers.aws.refusals import translate_refusal
from orchestrator.adapters.providers.aws.sweep import Found, find_instances, of_machine
from orchestrator.adapters.providers.aws.tags import CREATED, machine_tags
from orchestrator.adapters.providers.aws.userdata import render_user_data
from orchestrator.adapters.providers.aws.view import SETTLES_IN, UNCLEAR_FOR, may_exist
from orchestrator.adapters.providers.aws.volumes import drop_new, known_volumes, ready_volumes
from orchestrator.core.disk import plan_disk
from orchestrator.core.errors import BadRequestError, KedgeError, NoCapacityError, StillBillingError

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import InstanceTypeDef

    from orchestrator.adapters.providers.aws.catalog import InstanceType
    from orchestrator.adapters.providers.aws.tools import Tools
    from orchestrator.core.machine import MachineOrder

_log = logging.getLogger(__name__)

_LISTED_IN = timedelta(seconds=30)


def create_instance(tools: Tools, order: MachineOrder) -> tuple[InstanceTypeDef, MachineRecord | None]:
    """Make the order's instance, or find the one that is there already, and see that it has its deadline and disks.

    Raises:
        NoCapacityError: AWS doesn't sell it now; nothing was made.
        StillBillingError: something may have been made, and AWS doesn't tell.
        KedgeError: anything else; nothing is left.
    """
    refuse_other_account(tools, order.run_id)
    earlier = tools.records.machine(order.id)
    found = _find_earlier(tools, earlier) if earlier else []
    instance = next((each.instance for each in found if not each.is_ending), None)
    if instance is None:
        _refuse_unclear(tools, order.run_id)
        ended = tuple(sorted(each.instance["InstanceId"] for each in found))
        instance, volumes = _Creation(tools, order, earlier, ended).launch()
    else:
        volumes = known_volumes(tools.session.client("ec2", order.region), order.volumes)
    complete_instance(tools, order, instance, volumes)
    return instance, tools.records.machine(order.id)


def _find_earlier(tools: Tools, earlier: MachineRecord) -> Sequence[Found]:
    """Find what was asked for before under this id: AWS may list it only a while after the request."""
    found: list[Found] = []

    def is_settled() -> bool:
        tagged = find_instances(tools.session, [earlier.region], of_machine(earlier.id))
        found[:] = tagged or find_untagged(tools.session, [earlier], tagged)
        return bool(found) or tools.clock.now() - earlier.asked_at > SETTLES_IN

    wait_until(tools.clock, SETTLES_IN, is_settled)
    return found


def _refuse_unclear(tools: Tools, run_id: str) -> None:
    """Refuse to make a machine while another of the run may have been made."""
    for record in tools.records.machines():
        if record.run_id != run_id or record.unclear_since is None or not may_exist(record, tools.clock.now()):
            continue
        if not find_instances(tools.session, [record.region], of_machine(record.id)):
            raise _unclear(record, "no request for it was answered")


class _Creation:
    """One attempt at one order."""

    def __init__(
        self, tools: Tools, order: MachineOrder, earlier: MachineRecord | None, ended: tuple[str, ...]
    ) -> None:
        self._tools = tools
        self._order = order
        self._earlier = earlier
        self._ended = ended
        self._ec2 = tools.session.client("ec2", order.region)
        self._is_new = False

    def launch(self) -> tuple[InstanceTypeDef, tuple[DataVolume, ...]]:
        if self._order.volumes:
            note_volumes(self._tools, self._order.run_id, self._order.region)
        try:
            kind = self._kind()
            volumes = ready_volumes(self._ec2, self._order, self._tools.clock)
        except KedgeError as err:
            raise _unless_closed(err, self._order) from err
        try:
            return self._launch(kind, volumes), volumes
        except StillBillingError:
            raise
        except KedgeError as err:
            # The next offer may be in another zone, where a volume that is made now could not go.
            drop_new(self._ec2, volumes, self._tools.clock)
            raise _unless_closed(err, self._order) from err

    def _launch(self, kind: InstanceType, volumes: tuple[DataVolume, ...]) -> InstanceTypeDef:
        what = f"machine {self._order.id} can't be created"
        try:
            return self._ask(kind, volumes)
        except (ClientError, BotoCoreError) as err:
            self._restore_record()
            if self._is_new or not is_unknown_yet(err):
                raise translate_refusal(err, offer_of(self._order), what) from err
            _log.info("what run %s had is gone at AWS: it is made anew", self._order.run_id)
            self._forget_belongings()
        try:
            return self._ask(kind, volumes)
        except (ClientError, BotoCoreError) as err:
            self._restore_record()
            raise translate_refusal(err, offer_of(self._order), what) from err

    def _ask(self, kind: InstanceType, volumes: tuple[DataVolume, ...]) -> InstanceTypeDef:
        tools, order = self._tools, self._order
        account = tools.account()
        own = find_own_network(self._ec2, order.site)
        subnet_id = subnet_for(own, order.zone, order.region)
        group, self._is_new = ensure_belongings(tools, order, account, own)
        image = find_image(order, tools.session, order.region, kind.accelerators, cache=tools.cache)
        tools.stage().put_agent(order.run_id, order.agent_archive)
        key = make_host_key()
        record = self._record(key, kind.gpus, group.id, subnet_id)
        request = render_request(
            order,
            LaunchParts(
                image_id=image.id,
                device=image.root_device,
                disk=plan_disk(
                    max(order.disk_gib or 0, image.min_disk_gib), iops=order.disk_iops, mibps=order.disk_mibps
                ),
                group_id=group.id,
                profile=profile_name(tools, order.run_id),
                user_data=render_user_data(boot_spec(order, key, volumes)),
                tags=machine_tags(order, record.asked_at, record.deadline_at),
                token=record.token,
                subnet_id=subnet_id,
            ),
        )
        once = tools.session.client("ec2", order.region, single_shot=True)
        tools.records.keep_machine(record)
        try:
            return launch(once, request, tools.clock, is_new=self._is_new)
        except UnclearOutcomeError as err:
            record = replace(record, unclear_since=tools.clock.now())
            tools.records.keep_machine(record)
            return self._look_up(record, err)

    def _record(self, key: HostKey, gpus: int, group_id: str, subnet_id: str) -> MachineRecord:
        order = self._order
        # Each offer is a request of its own, and so is one after an instance that has ended: AWS refuses a token that
        # comes back with other parameters.
        place = (order.region, order.zone, order.instance_type, "spot" if order.spot else "on-demand", *self._ended)
        now = self._tools.clock.now()
        return MachineRecord(
            id=order.id,
            run_id=order.run_id,
            region=order.region,
            token=token(order.id, *place, group_id, *([subnet_id] if subnet_id else ())),
            host_key=key.public,
            asked_at=now,
            # Until an answer has been read: this process may be gone before one comes.
            unclear_since=now,
            lifetime_seconds=order.lifetime_seconds,
            usd_per_hour=order.usd_per_hour,
            account=self._tools.account_id(),
            volumes=order.volumes,
            gpus=gpus,
            private=order.site.is_private,
            jump_host=order.site.jump_host,
            proxy_command=order.site.proxy_command,
        )

    def _look_up(self, record: MachineRecord, cause: UnclearOutcomeError) -> InstanceTypeDef:
        """Find what a request with an unclear outcome has made."""
        found: list[Found] = []

        def is_listed() -> bool:
            listed = find_instances(self._tools.session, [record.region], of_machine(record.id))
            found[:] = [each for each in listed if not each.is_gone and each.instance["InstanceId"] not in self._ended]
            return bool(found)

        try:
            wait_until(self._tools.clock, _LISTED_IN, is_listed)
        except KedgeError as err:
            raise _unclear(record, str(cause)) from err
        if not found:
            raise _unclear(record, str(cause)) from cause
        if found[0].tags.get(CREATED) != record.asked_at.isoformat():
            # An earlier command made it: it shows that command's host key.
            self._restore_record()
        return found[0].instance

    def _forget_belongings(self) -> None:
        """Drop what a launch needs from the run's record; what it has elsewhere is still to be removed at its end."""
        record = self._tools.records.run(self._order.run_id)
        groups = {region: group for region, group in record.groups.items() if region != self._order.region}
        self._tools.records.keep_run(replace(record, role=False, shared_role=False, groups=groups))

    def _restore_record(self) -> None:
        if self._earlier is not None:
            self._tools.records.keep_machine(self._earlier)
        else:
            self._tools.records.forget_machine(self._order.id)

    def _kind(self) -> InstanceType:
        order, tools = self._order, self._tools
        reader = RegionReader(tools.session, order.region, tools.cache, tools.clock)
        try:
            found = reader.types([order.instance_type])
        except (ClientError, BotoCoreError) as err:
            raise translate(err, f"{order.instance_type} can't be looked up in {order.region}") from err
        if not found:
            raise BadRequestError(f"{order.region} has no {order.instance_type}", fix="choose another --instance-type")
        return found[0]


def _unless_closed(err: KedgeError, order: MachineOrder) -> KedgeError:
    """Return what to raise: where a region is closed, the next one may not be."""
    if isinstance(err, NoCapacityError) or not is_closed(err):
        return err
    return NoCapacityError(err.what, why=err.why, fix=err.fix, covers=lambda other: other.region == order.region)


def _unclear(record: MachineRecord, cause: str) -> StillBillingError:
    minutes = UNCLEAR_FOR.total_seconds() / 60
    return StillBillingError(
        f"machine {record.id} may have been created",
        why=f"AWS didn't answer clearly ({cause}), and lists no such machine in {record.region} so far",
        fix=f"run `kedge teardown {record.run_id}`, which looks again; it counts as billing for {minutes:.0f} minutes",
    )
