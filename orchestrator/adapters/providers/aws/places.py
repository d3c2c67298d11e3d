"""Which regions are asked, and which zone counts: what was wished for, and where a data volume already is."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from orchestrator.adapters.providers.aws.zones import region_of
from orchestrator.core.errors import BadRequestError

if TYPE_CHECKING:
    from orchestrator.adapters.providers.aws.session import AwsSession
    from orchestrator.core.job import Resources

_REGION = re.compile(r"[a-z]{2}(?:-[a-z]+)+-\d")


def choose_regions(resources: Resources, session: AwsSession, zone: str | None) -> tuple[str, ...]:
    """Return the regions to ask, in the order of the wish; a zone says its own.

    Raises:
        BadRequestError: a region that AWS doesn't have, or a zone that is in none of them.
    """
    wanted = tuple(_checked(name) for name in resources.regions)
    region = region_of(zone, (*wanted, *session.known_regions())) if zone else None
    if region is None:
        return wanted or (session.region,)
    if wanted and region not in wanted:
        raise BadRequestError(
            f"{zone} is in none of the regions {', '.join(wanted)}",
            why=f"it is a zone of {region}",
            fix=f"say --region {region}, or choose another --zone",
        )
    return (region,)


def choose_zone(wish: str | None, volume_zone: str | None) -> str | None:
    """Return the zone that is left, by name.

    Raises:
        BadRequestError: the wish and the volume contradict each other.
    """
    if wish and volume_zone and wish != volume_zone:
        raise BadRequestError(
            f"a machine in {wish} can't use the data volume",
            why=f"the volume is in {volume_zone}, and a volume serves machines of its own zone only",
            fix=f"say --zone {volume_zone} or leave it out, or name another volume",
        )
    return wish or volume_zone


def _checked(region: str) -> str:
    """Return a region's name; a new one may be unknown to the SDK, what isn't written like one is unknown to AWS."""
    if _REGION.fullmatch(region):
        return region
    raise BadRequestError(
        f"AWS has no region {region!r}",
        why="its regions are called like us-east-1",
        fix="say it as AWS does, for example --region eu-west-1",
    )
