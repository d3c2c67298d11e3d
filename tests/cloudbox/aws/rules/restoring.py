"""Volumes from snapshots: what EC2 refuses, and what a rate of initialization costs."""

from __future__ import annotations

import re
from decimal import Decimal

from moto.ec2.models.elastic_block_store import Snapshot, Volume

from tests.cloudbox.aws.rules import disk_speed, prices
from tests.cloudbox.aws.wire import moto_state
from tests.cloudbox.aws.wire.answers import AwsError
from tests.cloudbox.aws.wire.call import Call

_GIB = 1024**3
_CHARGED = "initialization_usd"


def fill_snapshots() -> None:
    """Let every snapshot hold half of what its volume could: moto doesn't tell. fact: ebs-snapshot-data."""
    Snapshot.full_snapshot_size_in_bytes = property(_held_bytes)  # type: ignore[attr-defined]


def check(call: Call) -> None:
    """Refuse a new volume of an impossible speed, or from a snapshot that can't fill it (fact: ebs-volume-snapshot).

    Raises:
        AwsError: It isn't complete, is archived, or is of a larger volume.
    """
    disk_speed.check(call)
    snapshot = _snapshot(call)
    if snapshot is None:
        return
    if snapshot.status != "completed":
        raise AwsError("IncorrectState", f"Snapshot is in invalid state - {snapshot.status}")
    if snapshot.storage_tier != "standard":
        raise AwsError("InvalidParameterValue", f"Snapshot {snapshot.id} is in the {snapshot.storage_tier} tier")
    size = call.params.get("Size")
    if size and int(size) < int(snapshot.volume_size):
        raise AwsError("InvalidParameterValue", "The volume size is smaller than the size of the snapshot")


def keep(call: Call, answer: str) -> None:
    """Charge a new volume for its rate, in full and at once (fact: ebs-initialization-rate)."""
    snapshot, mibps = _snapshot(call), call.params.get("VolumeInitializationRate")
    made = re.search(r"<volumeId>(vol-[0-9a-f]+)</volumeId>", answer)
    if snapshot is not None and mibps and made:
        volume = moto_state.ec2(call.region).get_volume(made[1])
        gib = Decimal(_held_bytes(snapshot)) / _GIB
        setattr(volume, _CHARGED, prices.initialization_usd(call.region) * gib * int(mibps))


def charged_usd(volume: Volume) -> Decimal:
    """Return what a volume was charged for its initialization."""
    return getattr(volume, _CHARGED, Decimal(0))


def _snapshot(call: Call) -> Snapshot | None:
    name = call.params.get("SnapshotId", "")
    return moto_state.ec2(call.region).snapshots.get(name)


def _held_bytes(snapshot: Snapshot) -> int:
    return int(snapshot.volume_size) * _GIB // 2
