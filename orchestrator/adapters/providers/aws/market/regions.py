"""Chooses the regions to query and the zone: from the job, and from where its data volumes are."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from orchestrator.adapters.providers.aws.access.zones import region_of
from orchestrator.core.errors import BadRequestError

if TYPE_CHECKING:
    from orchestrator.adapters.providers.aws.access.session import AwsSession
    from orchestrator.core.job import Resources

_REGION = re.compile(r"[a-z]{2}(?:-[a-z]+)+-\d")


def choose_regions(resources: Resources, session: AwsSession, zone: str | None) -> tuple[str, ...]:
    """Return the regions to query, in the job's order; a zone implies its region.

    Raises:
        BadRequestError: AWS has no such region, or the zone is in none of them.
    """
    wanted = tuple(_checked(name) for name in resources.regions)
    region = region_of(zone, (*wanted, *session.known_regions())) if zone else None
    if region is None:
        return wanted or (session.region,)
    if wanted and region not in wanted:
        raise BadRequestError(
            f"{zone} is in none of the regions {', '.join(wanted)}",
            why=f"it is a zone of {region}",
            fix=f"use --region {region}, or choose another --zone",
        )
    return (region,)


def choose_zone(zone: str | None, volume_zone: str | None) -> str | None:
    """Return the zone that both the job and the volume allow, by name.

    Raises:
        BadRequestError: the job's zone is not the volume's.
    """
    if zone and volume_zone and zone != volume_zone:
        raise BadRequestError(
            f"a machine in {zone} can't use the data volume",
            why=f"the volume is in {volume_zone}, and a volume serves machines of its own zone only",
            fix=f"use --zone {volume_zone} or leave it out, or name another volume",
        )
    return zone or volume_zone


def _checked(region: str) -> str:
    """Return a region's name if it is well formed; the SDK may not know a new region."""
    if _REGION.fullmatch(region):
        return region
    raise BadRequestError(
        f"AWS has no region {region!r}",
        why="its regions have names like us-east-1",
        fix="use AWS's name, for example --region eu-west-1",
    )
