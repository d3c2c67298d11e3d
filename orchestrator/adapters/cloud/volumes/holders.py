"""Waits until a data volume is free, attaches it to a machine, and marks which run used it last.

These marks decide what happens to a volume at its run's end. An existing volume gets a run's marks only once a machine
of that run has it, so that no other run can end it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar

from orchestrator.adapters.cloud.volumes.model import UnknownVolumeError
from orchestrator.adapters.host.retry import poll_until, retry
from orchestrator.core.errors import ConflictError, KedgeError

if TYPE_CHECKING:
    from orchestrator.adapters.cloud.volumes.model import DataVolume, ListedVolume, VolumeApi
    from orchestrator.core.ports import Clock

_Answer = TypeVar("_Answer")

_DETACHES_IN = timedelta(minutes=3)
"""A volume is detached once its machine has shut down."""
_OWN_DETACHES_IN = timedelta(minutes=15)
"""Machines with many GPUs take this long to shut down; for one of the same run the wait is worthwhile."""
_RUNS_IN = timedelta(minutes=5)


def is_free_soon(api: VolumeApi, volume: ListedVolume, clock: Clock) -> bool:
    """Wait as long as a machine takes to release its volumes; False if the volume still has a holder.

    Raises:
        KedgeError: the cloud doesn't tell.
    """
    return bool(poll_until(lambda: api.read(volume).is_free, _DETACHES_IN, clock))


def await_free(api: VolumeApi, volume: DataVolume, run_id: str, clock: Clock) -> DataVolume:
    """Wait until the volume is free: the run's previous machine may still be shutting down.

    Returns:
        The volume's new state: another run may have used it meanwhile.

    Raises:
        ConflictError: a machine still has it.
        KedgeError: the cloud doesn't tell.
    """
    seen = volume.listed

    def is_free() -> bool:
        nonlocal seen
        seen = _ask_known(api, volume, clock, lambda: api.read(volume.listed))
        return seen.is_free

    if not poll_until(is_free, _DETACHES_IN, clock):
        is_own = bool(seen.holder) and api.is_ending_machine_of(seen.holder, seen.region, run_id)
        if not (is_own and poll_until(is_free, _OWN_DETACHES_IN - _DETACHES_IN, clock)):
            raise _in_use(api, replace(volume, listed=seen), is_own=is_own)
    # The marks of a new volume may be shown only later: without them it would count as one that kedge didn't make.
    origin = volume.listed.origin if volume.is_new else seen.origin
    return replace(volume, listed=replace(seen, holder="", origin=origin))


def give_volumes(api: VolumeApi, instance_id: str, run_id: str, volumes: Sequence[DataVolume], clock: Clock) -> None:
    """Attach volumes to a machine once it runs, and mark them; volumes that it has already are left as they are.

    Raises:
        ConflictError: another machine has one.
        KedgeError: the machine doesn't run in time, or the cloud doesn't attach or mark them.
    """
    if not volumes:
        return
    if not api.traits.attaches_at_birth:
        region = volumes[0].listed.region
        if not poll_until(lambda: api.takes_volumes(instance_id, region), _RUNS_IN, clock):
            raise KedgeError(f"{instance_id} doesn't run", why=f"it had {_RUNS_IN.total_seconds():.0f} s to start")
    for volume in volumes:
        if not api.traits.attaches_at_birth:
            _attach(api, instance_id, volume, clock)
        _mark(api, instance_id, run_id, volume)


def _attach(api: VolumeApi, instance_id: str, volume: DataVolume, clock: Clock) -> None:
    holder = volume.listed.holder
    if holder not in ("", instance_id):
        raise _in_use(api, volume, is_own=False)
    if not holder:
        _ask_known(api, volume, clock, lambda: api.attach(volume, instance_id))


def _mark(api: VolumeApi, instance_id: str, run_id: str, volume: DataVolume) -> None:
    """Mark a volume as used by this run, whose teardown ends it; no call if the machine's volume has these marks."""
    there, at_end = volume.listed, volume.spec.at_end
    if there.holder != instance_id and not volume.is_new:
        # Another run may have used and marked it since it was read; now that it is attached, no other run can.
        there = api.read(there)
    if (there.run_id, there.at_end) != (run_id, at_end):
        api.mark_used(there, run_id, at_end)


def _ask_known(api: VolumeApi, volume: DataVolume, clock: Clock, ask: Callable[[], _Answer]) -> _Answer:
    """Send a request about a volume, again while the cloud doesn't know a volume that was created a moment ago."""
    within = api.traits.appears_in if volume.is_new else timedelta(0)
    return retry(ask, on=lambda err: isinstance(err, UnknownVolumeError), within=within, clock=clock)


def _in_use(api: VolumeApi, volume: DataVolume, *, is_own: bool) -> ConflictError:
    what = f"the data volume {volume.spec.name} is in use"
    if is_own:
        minutes = _OWN_DETACHES_IN.total_seconds() / 60
        return ConflictError(
            what,
            why=f"the run's previous machine has {volume.id}: it has been shutting down for {minutes:.0f} minutes",
            fix=f"run the command again in a few minutes; {api.traits.speaker} ends the machine",
        )
    return ConflictError(
        what,
        why=_why_in_use(volume),
        fix="wait for the run that has it, or tear that run down",
    )


def _why_in_use(volume: DataVolume) -> str:
    if not volume.listed.holder:
        return f"{volume.id} has no machine, and can't be attached: its cloud still creates it, or has lost it"
    return f"{volume.id} is attached to another machine, of run {volume.listed.run_id or 'nobody'}"
