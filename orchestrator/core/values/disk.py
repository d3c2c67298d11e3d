"""Sizes and speeds of disks whose speed is sold separately: gp3 of Amazon EBS.

Source of the limits: botocore's model of EC2 (CreateVolume: `Iops`, `Throughput`, `Size`, `VolumeInitializationRate`)
and Amazon EBS user guide, "General Purpose SSD volumes" and "Initialize Amazon EBS volumes", read in November 2026.
"""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.core.errors import BadRequestError

LEAST_IOPS = 3_000
"""The IOPS that every volume has at no extra price."""

LEAST_MIBPS = 125
"""The throughput that every volume has at no extra price."""

MOST_IOPS = 80_000
MOST_MIBPS = 2_000

LEAST_INITIALIZATION_MIBPS = 100
MOST_INITIALIZATION_MIBPS = 300

_IOPS_PER_GIB = 500
_IOPS_PER_MIBPS = 4
_LARGE_GIB = 500
_LARGE_MIBPS = 500
"""Default throughput of a large disk: data that is read in every epoch must keep the GPUs busy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """A disk that is to be created.

    Attributes:
        iops: input and output operations a second.
        mibps: throughput in MiB a second.
    """

    size_gib: int
    iops: int = LEAST_IOPS
    mibps: int = LEAST_MIBPS


def plan_disk(size_gib: int, *, iops: int | None = None, mibps: int | None = None) -> Disk:
    """Return a disk with the requested values, and sensible values for the others.

    Args:
        size_gib: of the disk.
        iops: by default as many as the throughput needs.
        mibps: by default 500 MiB/s for a disk of 500 GiB or more, else 125.

    Raises:
        BadRequestError: no gp3 volume of this size can have them.
    """
    wished_mibps = mibps if mibps is not None else _usual_mibps(size_gib, iops)
    _refuse_outside("throughput", wished_mibps, LEAST_MIBPS, MOST_MIBPS, "MiB/s")
    disk = Disk(
        size_gib=size_gib,
        iops=iops if iops is not None else max(LEAST_IOPS, wished_mibps * _IOPS_PER_MIBPS),
        mibps=wished_mibps,
    )
    _refuse_outside("iops", disk.iops, LEAST_IOPS, MOST_IOPS, "IOPS")
    most_iops = max(LEAST_IOPS, size_gib * _IOPS_PER_GIB)
    if disk.iops > most_iops:
        raise BadRequestError(
            f"a disk of {size_gib} GiB can't have {disk.iops:,} IOPS",
            why=f"gp3 has at most {_IOPS_PER_GIB} for each GiB, and a MiB/s needs {_IOPS_PER_MIBPS}",
            fix=f"choose a larger size, or {most_iops:,} IOPS and {most_iops // _IOPS_PER_MIBPS:,} MiB/s at most",
        )
    if disk.mibps * _IOPS_PER_MIBPS > disk.iops:
        raise BadRequestError(
            f"{disk.iops:,} IOPS are too few for {disk.mibps:,} MiB/s",
            why=f"gp3 needs {_IOPS_PER_MIBPS} IOPS for each MiB/s",
            fix=f"write iops: {disk.mibps * _IOPS_PER_MIBPS}, or leave `iops` out",
        )
    return disk


def check_initialization(snapshot_id: str | None, mibps: int | None) -> None:
    """Check the rate, in MiB/s, at which a volume is filled from its snapshot; None: the default of EBS.

    Raises:
        BadRequestError: there is no snapshot, or EBS doesn't offer this rate.
    """
    if mibps is None:
        return
    if snapshot_id is None:
        raise BadRequestError(
            "initialization_rate needs a snapshot",
            why="a blank volume is quick at once: there is nothing to fill it with",
            fix="name a `snapshot`, or leave `initialization_rate` out",
        )
    if not LEAST_INITIALIZATION_MIBPS <= mibps <= MOST_INITIALIZATION_MIBPS:
        raise BadRequestError(
            f"initialization_rate: {mibps:,} is outside of what EBS volumes have",
            why=f"that is {LEAST_INITIALIZATION_MIBPS} to {MOST_INITIALIZATION_MIBPS} MiB/s",
            fix="choose a value between these, or leave `initialization_rate` out",
        )


def _usual_mibps(size_gib: int, iops: int | None) -> int:
    if size_gib < _LARGE_GIB:
        return LEAST_MIBPS
    return _LARGE_MIBPS if iops is None else min(_LARGE_MIBPS, iops // _IOPS_PER_MIBPS)


def _refuse_outside(key: str, value: int, least: int, most: int, unit: str) -> None:
    if not least <= value <= most:
        raise BadRequestError(
            f"{key}: {value:,} is outside of what gp3 volumes have",
            why=f"that is {least:,} to {most:,} {unit}",
            fix=f"choose a value between these, or leave `{key}` out",
        )
