"""Ends data volumes: at a run's teardown as their own marks say (kept, deleted, snapshotted), or as the user says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from orchestrator.adapters.cloud.boot.cloud_config import Origin
from orchestrator.adapters.cloud.volumes.holders import is_free_soon
from orchestrator.adapters.cloud.volumes.model import UnknownVolumeError
from orchestrator.adapters.host.retry import poll_until
from orchestrator.core.errors import BadRequestError, ConflictError
from orchestrator.core.job import AtEnd
from orchestrator.core.sweep import DATA_VOLUME, Leftover

if TYPE_CHECKING:
    from orchestrator.adapters.cloud.volumes.model import ListedVolume, VolumeApi
    from orchestrator.core.ports import Clock

_COPIED_IN = timedelta(minutes=10)
"""How long to wait for a snapshot. One that takes longer completes by itself, and the next teardown finds it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VolumeEnd:
    """What has become of one data volume.

    Attributes:
        says: one line; "kept ..." for a volume that is still there.
        is_settled: False if a later call may end it.
    """

    says: str
    is_settled: bool = True


def end_volumes(api: VolumeApi, run_id: str, region: str, clock: Clock) -> Sequence[VolumeEnd]:
    """Keep, delete or snapshot the data volumes that a run used last.

    A volume is deleted only if kedge made it, once no machine has it, and only after its snapshot is complete. A
    volume that another run has used since is left to that run's teardown.

    Raises:
        KedgeError: the cloud doesn't allow it.
    """
    return [_end(api, volume, run_id, clock) for volume in api.list_of_run(run_id, region)]


def delete_volume(api: VolumeApi, volume_id: str, region: str, clock: Clock) -> None:
    """Delete a volume that the user doesn't need any more, whatever its marks say; one that is gone is no error.

    Raises:
        BadRequestError: kedge didn't make it.
        ConflictError: a machine has it.
        KedgeError: the cloud doesn't allow it.
    """
    volume = next((each for each in api.list_all(region) if each.id == volume_id), None)
    if volume is None:
        return
    name = f"data volume {volume.name} ({volume.id})"
    if volume.origin is Origin.FOUND:
        raise BadRequestError(
            f"the {name} is not deleted",
            why="kedge didn't make it",
            fix="delete it in the provider's console",
        )
    try:
        if not volume.is_lost and not _is_released(api, volume, clock):
            raise ConflictError(
                f"the {name} is in use",
                why=f"{volume.holder or 'a machine'} has it, of run {volume.run_id}",
                fix="wait for the run's end, or tear it down",
            )
        api.delete(volume)
    except UnknownVolumeError:
        return


def leftover_of(volume: ListedVolume) -> Leftover:
    """Show a volume in a sweep of the account."""
    return Leftover(
        kind=DATA_VOLUME,
        name=f"{volume.name} ({volume.id})",
        run_id=volume.run_id,
        region=volume.region,
        created_at=volume.created_at,
        usd_per_hour=volume.usd_per_hour,
        id=volume.id,
        kept=volume.is_kept,
    )


def _end(api: VolumeApi, volume: ListedVolume, run_id: str, clock: Clock) -> VolumeEnd:
    name = f"data volume {volume.name} ({volume.id})"
    if volume.at_end is AtEnd.KEEP:
        return VolumeEnd(says=f"kept {name}; it bills until it is deleted")
    try:
        return _end_lost(api, volume, name) if volume.is_lost else _end_free(api, volume, run_id, name, clock)
    except UnknownVolumeError:
        return VolumeEnd(says=f"{name} is gone")


def _end_lost(api: VolumeApi, volume: ListedVolume, name: str) -> VolumeEnd:
    if volume.at_end is AtEnd.SNAPSHOT or volume.origin is Origin.FOUND:
        left = f"kept {name}: {api.traits.speaker} has lost it, so it can't be copied"
        return VolumeEnd(says=f"{left}; it bills until it is deleted")
    api.delete(volume)
    return VolumeEnd(says=f"deleted {name}")


def _end_free(api: VolumeApi, volume: ListedVolume, run_id: str, name: str, clock: Clock) -> VolumeEnd:
    if not is_free_soon(api, volume, clock):
        return _unsettled(f"kept {name}: it isn't free yet")
    copy = ""
    if volume.at_end is AtEnd.SNAPSHOT:
        snapshot_id = api.find_snapshot(volume, run_id) or api.begin_snapshot(volume, run_id)
        if not poll_until(lambda: api.is_copied(snapshot_id, volume.region), _COPIED_IN, clock):
            return _unsettled(f"kept {name}: its snapshot {snapshot_id} isn't complete")
        copy = f"; its snapshot is {snapshot_id}"
    if volume.origin is Origin.FOUND:
        return VolumeEnd(says=f"kept {name}, which kedge didn't make{copy}")
    # The wait took minutes: another run may have used the volume since.
    if api.read(volume).run_id != volume.run_id:
        return VolumeEnd(says=f"kept {name}: another run has used it since{copy}")
    api.delete(volume)
    return VolumeEnd(says=f"deleted {name}{copy}")


def _is_released(api: VolumeApi, volume: ListedVolume, clock: Clock) -> bool:
    """Wait for a machine that is ending; one that works has the volume for as long as it likes."""
    is_held = volume.holder and not api.is_ending_machine_of(volume.holder, volume.region, volume.run_id)
    return not is_held and is_free_soon(api, volume, clock)


def _unsettled(says: str) -> VolumeEnd:
    return VolumeEnd(says=f"{says}; run the command again later", is_settled=False)
