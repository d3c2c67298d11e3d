"""Finds or creates an order's data volumes before its machine is requested, and waits until they are free."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from orchestrator.adapters.cloud.refusals import Unclear
from orchestrator.adapters.cloud.volumes.find import find_volumes, of_machine
from orchestrator.adapters.cloud.volumes.holders import await_free, is_free_soon
from orchestrator.adapters.host.retry import poll_until
from orchestrator.core.errors import BadRequestError, KedgeError, StillBillingError

if TYPE_CHECKING:
    from orchestrator.adapters.cloud.volumes.model import DataVolume, ListedVolume, VolumeApi
    from orchestrator.core.job import VolumeSpec
    from orchestrator.core.machine import MachineOrder
    from orchestrator.core.ports import Clock

_log = logging.getLogger(__name__)

_LISTED_IN = timedelta(seconds=30)


def ensure_volumes(api: VolumeApi, order: MachineOrder, clock: Clock) -> tuple[DataVolume, ...]:
    """Find or create the order's volumes, and wait until each can be attached. No call if the order has none.

    Raises:
        ConflictError: another machine has a volume.
        NoCapacityError: this place refuses a volume; another may take it.
        StillBillingError: a volume may have been created, and the cloud doesn't tell.
        KedgeError: the cloud doesn't allow it.
    """
    if not order.volumes:
        return ()
    word = api.traits.place_word
    if not api.place_of(order):
        raise BadRequestError(
            f"data volumes need a {word}", why=f"a volume is in one {word}", fix=f"choose one with --{word}"
        )
    api.note_use(order.run_id, order.region)
    volumes: list[DataVolume] = []
    try:
        found = find_volumes(api, [spec.name for spec in order.volumes], order.region)
        for number, spec in enumerate(order.volumes):
            volumes.append(_take_or_make(api, order, number, found.get(spec.name), clock))
        return tuple(await_free(api, volume, order.run_id, clock) for volume in volumes)
    except KedgeError:
        delete_new_volumes(api, volumes, clock)
        raise


def delete_new_volumes(api: VolumeApi, volumes: Sequence[DataVolume], clock: Clock) -> None:
    """Delete the volumes that were created for an order which then failed; they are unused."""
    for volume in volumes:
        if volume.is_new:
            try:
                _delete_new(api, volume, clock)
            except KedgeError as err:
                _log.warning("data volume %s (%s) is left, unused: %s", volume.spec.name, volume.id, err.why)


def _take_or_make(
    api: VolumeApi, order: MachineOrder, number: int, there: ListedVolume | None, clock: Clock
) -> DataVolume:
    spec = order.volumes[number]
    if there is None:
        made = _make(api, order, spec, clock)
        _log.info("made data volume %s (%s, %d GiB)", spec.name, made.id, spec.size_gib)
        return of_machine(api, made, spec, number, is_new=True)
    wanted = api.place_of(order)
    if wanted not in (there.place, there.place_id):
        raise BadRequestError(
            f"the data volume {spec.name} can't be attached in {wanted}",
            why=f"it is in {there.place}",
            fix=f"use --{api.traits.place_word} {there.place}",
        )
    return of_machine(api, there, spec, number)


def _make(api: VolumeApi, order: MachineOrder, spec: VolumeSpec, clock: Clock) -> ListedVolume:
    made = api.create(spec, order, clock.now())
    if not isinstance(made, Unclear):
        return made
    listed = _await_listed(api, spec.name, order.region, clock)
    if listed is None:
        raise StillBillingError(
            f"the data volume {spec.name} may have been made",
            why=f"{made.why}; it isn't listed so far",
            fix=f"look again with `kedge teardown {order.run_id}`",
        ) from made.error
    return listed


def _await_listed(api: VolumeApi, name: str, region: str, clock: Clock) -> ListedVolume | None:
    """Find what an unclear request has created: a name exists once or not at all."""
    return poll_until(lambda: find_volumes(api, [name], region).get(name), _LISTED_IN, clock)


def _delete_new(api: VolumeApi, volume: DataVolume, clock: Clock) -> None:
    if api.traits.attaches_at_birth:
        # A deleted machine may still hold the volume for a while.
        is_free_soon(api, volume.listed, clock)
    if not poll_until(lambda: api.delete(volume.listed), api.traits.appears_in, clock):
        _log.warning("%s knows no data volume %s (%s)", api.traits.speaker, volume.spec.name, volume.id)
