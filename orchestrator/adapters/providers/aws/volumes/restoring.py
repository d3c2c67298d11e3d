"""Snapshots that new data volumes are filled from: whether they are usable, where they are, what filling costs."""

from __future__ import annotations

from dataclasses import replace
from decimal import ROUND_UP, Decimal
from typing import TYPE_CHECKING, TypedDict

from botocore.exceptions import BotoCoreError, ClientError

from orchestrator.adapters.aws_sdk import code_of, translate
from orchestrator.adapters.providers.aws.access.closed import is_closed
from orchestrator.adapters.providers.aws.market.prices import INITIALIZATION_USD
from orchestrator.adapters.providers.aws.market.regions import choose_regions
from orchestrator.core.errors import BadRequestError, KedgeError

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_ec2.type_defs import SnapshotTypeDef

    from orchestrator.adapters.providers.aws.access.session import AwsSession
    from orchestrator.core.job import Resources, VolumeSpec

_GIB = Decimal(1024**3)
_MICRO = Decimal("0.000001")
_UNKNOWN = ("InvalidSnapshot.NotFound", "InvalidSnapshotID.Malformed")


class FromSnapshot(TypedDict, total=False):
    """CreateVolume's parameters for a snapshot; empty for a blank volume."""

    SnapshotId: str
    VolumeInitializationRate: int


def as_request(spec: VolumeSpec) -> FromSnapshot:
    """Return the parameters for a volume's snapshot and, if the job has one, the rate."""
    if spec.snapshot_id is None:
        return {}
    if spec.initialization_mibps is None:
        return {"SnapshotId": spec.snapshot_id}
    # fact: ebs-initialization-rate
    return {"SnapshotId": spec.snapshot_id, "VolumeInitializationRate": spec.initialization_mibps}


def place_snapshots(resources: Resources, session: AwsSession, volume_zone: str | None) -> tuple[Resources, Decimal]:
    """Look up the snapshots of new volumes; no call if there are none.

    Returns:
        The requirements with the regions that have all snapshots, and what filling the volumes costs once, in dollars.

    Raises:
        BadRequestError: no region has all of them, or one isn't usable.
        KedgeError: AWS refuses, or doesn't answer.
    """
    from_snapshots = [spec for spec in resources.volumes if spec.snapshot_id]
    if not from_snapshots:
        return resources, Decimal(0)
    usd: dict[str, Decimal] = {}
    refusals: list[KedgeError] = []
    for region in choose_regions(resources, session, resources.zone or volume_zone):
        try:
            usd[region] = _once_usd(session.client("ec2", region), from_snapshots)
        except BadRequestError as err:
            refusals.append(err)
        except KedgeError as err:
            if not is_closed(err):
                raise
            refusals.append(err)
    if not usd:
        raise refusals[0]
    return replace(resources, regions=tuple(usd)), max(usd.values())


def _once_usd(ec2: EC2Client, specs: list[VolumeSpec]) -> Decimal:
    return sum((_initialization_usd(spec, _find(ec2, spec)) for spec in specs), Decimal(0))


def _find(ec2: EC2Client, spec: VolumeSpec) -> SnapshotTypeDef:
    """Find a volume's snapshot in a region, whoever owns it, and check that it can fill the volume."""
    what = f"the volume {spec.name} can't be made from {spec.snapshot_id}"
    try:
        found = ec2.describe_snapshots(SnapshotIds=[str(spec.snapshot_id)])["Snapshots"][0]
    except (ClientError, BotoCoreError) as err:
        if isinstance(err, ClientError) and code_of(err) in _UNKNOWN:
            raise BadRequestError(
                what,
                why=f"{ec2.meta.region_name} has no such snapshot, or this account may not use it",
                fix="choose its own region with --region, or copy it into this one (`aws ec2 copy-snapshot`)",
            ) from err
        raise translate(err, f"the snapshot {spec.snapshot_id} can't be looked up") from err
    if found["State"] != "completed":
        raise BadRequestError(
            what, why=f"it is {found['State']} ({found.get('Progress') or '0%'})", fix="wait until it is completed"
        )
    if found.get("StorageTier") == "archive":
        raise BadRequestError(
            what, why="it is in the archive tier", fix="restore it first (`aws ec2 restore-snapshot-tier`)"
        )
    if found["VolumeSize"] > spec.size_gib:
        raise BadRequestError(
            what,
            why=f"it is of a volume of {found['VolumeSize']} GiB, and the new one is to have {spec.size_gib}",
            fix=f"write size: {found['VolumeSize']} or more",
        )
    return found


def _initialization_usd(spec: VolumeSpec, snapshot: SnapshotTypeDef) -> Decimal:
    """Return the most that a rate can cost: it is billed by the snapshot's data, at most the size of its volume."""
    if spec.initialization_mibps is None:
        return Decimal(0)
    most = Decimal(snapshot["VolumeSize"])
    held = snapshot.get("FullSnapshotSizeInBytes")
    gib = min(most, held / _GIB) if held else most
    return (INITIALIZATION_USD * gib * spec.initialization_mibps).quantize(_MICRO, rounding=ROUND_UP)
