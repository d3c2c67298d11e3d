"""Availability zones: their names and ids, and which region they are in.

A name such as `us-east-1a` means another zone in each account; an id such as `use1-az1` means the same zone in all:
https://docs.aws.amazon.com/ram/latest/userguide/working-with-az-ids.html (November 2026). A zone that the user names
by its id is sent as an id.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, TypedDict

from orchestrator.core.errors import BadRequestError

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client

_ID = re.compile(r"(?P<region>[a-z]+\d+)(?:-[a-z]+\d+)?-az\d+")
_REGION_OF_NAME = re.compile(r"[a-z]{2}(?:-[a-z]+)+-\d")
_DIRECTIONS = re.compile(r"north|south|east|west|central")


class ZoneByName(TypedDict):
    """A zone as EC2's requests name it."""

    AvailabilityZone: str


class ZoneById(TypedDict):
    """A zone as EC2's requests name it by its id."""

    AvailabilityZoneId: str


def is_zone_id(zone: str) -> bool:
    """Tell an id (`use1-az1`) from a name (`us-east-1a`)."""
    return _ID.fullmatch(zone) is not None


def as_request(zone: str) -> ZoneByName | ZoneById:
    """Return the request parameter for a zone: EC2 has a separate one for ids."""
    # fact: aws-zone-id-member
    return {"AvailabilityZoneId": zone} if is_zone_id(zone) else {"AvailabilityZone": zone}


def region_of(zone: str, known: Iterable[str]) -> str | None:
    """Return the region of a zone; the region of an id is searched in `known`."""
    if found := _ID.fullmatch(zone):
        return next((region for region in known if _short(region) == found["region"]), None)
    named = _REGION_OF_NAME.match(zone)
    return named[0] if named else None


def ask_zone_ids(ec2: EC2Client) -> dict[str, str]:
    """Request the ids of a region's zones, keyed by their names in this account."""
    zones = ec2.describe_availability_zones()["AvailabilityZones"]
    own = (zone for zone in zones if zone.get("ZoneType", "availability-zone") == "availability-zone")
    return {zone["ZoneName"]: zone["ZoneId"] for zone in own}


def name_of(zone_id: str, ids: dict[str, str], region: str) -> str:
    """Return a zone's name in this account.

    Raises:
        BadRequestError: the region has no such zone.
    """
    for name, each in ids.items():
        if each == zone_id:
            return name
    raise BadRequestError(
        f"{region} has no zone {zone_id}",
        why=f"its zones are {', '.join(sorted(ids.values()))}",
        fix="choose one of those with --zone",
    )


def _short(region: str) -> str:
    """Shorten a region as zone ids do: us-east-1 to use1, ap-southeast-2 to apse2."""
    area, *middle, number = region.split("-")
    letters = "".join(word[0] for part in middle for word in _DIRECTIONS.findall(part) or [part])
    return f"{area}{letters}{number}"
