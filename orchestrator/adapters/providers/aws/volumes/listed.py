"""Parses EC2's description of a volume into a `ListedVolume`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from orchestrator.adapters.aws_sdk import code_of, translate
from orchestrator.adapters.cloud.boot.cloud_config import Origin
from orchestrator.adapters.cloud.volumes.model import ListedVolume, UnknownVolumeError
from orchestrator.adapters.providers.aws.market.prices import DiskPrices
from orchestrator.adapters.providers.aws.tags import AT_END, CREATED, RUN, VOLUME, read_tags
from orchestrator.core.job import AtEnd
from orchestrator.core.values.disk import LEAST_IOPS, LEAST_MIBPS, Disk

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import VolumeTypeDef

_GP3_PRICES = DiskPrices(gib=Decimal("0.08"), iops=Decimal("0.005"), mibps=Decimal("0.04"))
"""The list prices in us-east-1, read in November 2026; other regions cost up to a half more."""


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Translate the SDK's errors; `what` says what couldn't be done.

    Raises:
        UnknownVolumeError: EC2 says that there is no such volume.
        KedgeError: anything else.
    """
    try:
        yield
    except (ClientError, BotoCoreError) as err:
        failure = translate(err, what)
        if isinstance(err, ClientError) and code_of(err) == "InvalidVolume.NotFound":
            raise UnknownVolumeError(failure.what, why=failure.why, fix=failure.fix) from err
        raise failure from err


def parse_volume(volume: VolumeTypeDef, region: str) -> ListedVolume:
    """Parse a volume; its name is empty if somebody has removed the tag."""
    tags = read_tags(volume.get("Tags"))
    said = tags.get(AT_END, "")
    is_gp3 = volume.get("VolumeType") == "gp3"
    disk = Disk(
        size_gib=volume["Size"],
        iops=(volume.get("Iops") if is_gp3 else None) or LEAST_IOPS,
        mibps=(volume.get("Throughput") if is_gp3 else None) or LEAST_MIBPS,
    )
    return ListedVolume(
        id=volume["VolumeId"],
        name=tags.get(VOLUME, ""),
        region=region,
        place=volume["AvailabilityZone"],
        place_id=volume.get("AvailabilityZoneId", ""),
        origin=_origin(volume, tags),
        serial=serial_of(volume["VolumeId"]),
        is_free=volume["State"] == "available",
        is_lost=volume["State"] == "error",
        run_id=tags.get(RUN, ""),
        at_end=AtEnd(said) if said in set(AtEnd) else AtEnd.KEEP,
        holder=next((each["InstanceId"] for each in volume.get("Attachments", ())), ""),
        tags=tags,
        size_gib=disk.size_gib,
        iops=disk.iops,
        mibps=disk.mibps,
        created_at=volume["CreateTime"],
        usd_per_hour=_GP3_PRICES.usd_per_hour([disk]),
    )


def serial_of(volume_id: str) -> str:
    """Return the serial number that the disk reports on a machine."""
    return volume_id.replace("-", "")


def _origin(volume: VolumeTypeDef, tags: Mapping[str, str]) -> Origin:
    if CREATED not in tags:
        return Origin.FOUND
    # fact: ebs-volume-snapshot
    return Origin.RESTORED if volume.get("SnapshotId") else Origin.MADE
