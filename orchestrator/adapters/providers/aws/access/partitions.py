"""Refuses the AWS partitions that kedge doesn't support: separate clouds with their own accounts and prices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.core.errors import BadRequestError

if TYPE_CHECKING:
    from orchestrator.core.job import Resources

ALWAYS_OPEN = "us-east-1"
"""A region that no account can disable: for calls about the whole account if the user has named no region.
fact: aws-first-region."""

_OTHERS = {
    "us-gov-": "AWS GovCloud (US)",
    "cn-": "AWS in China",
    "us-iso": "one of AWS's isolated clouds",
    "eu-iso": "one of AWS's isolated clouds",
    "eusc-": "the AWS European Sovereign Cloud",
}
"""Prefixes of regions: https://docs.aws.amazon.com/whitepapers/latest/aws-fault-isolation-boundaries/partitions.html
(November 2026). fact: aws-partitions."""


def refuse_unsupported(resources: Resources) -> None:
    """Refuse a job whose regions or zone are in another partition; nothing is contacted.

    Raises:
        BadRequestError: a region or the zone is in another partition.
    """
    for place in (*resources.regions, resources.zone or ""):
        refuse_region(place)


def refuse_region(place: str) -> None:
    """Refuse a region, or a zone of one, in another partition.

    Raises:
        BadRequestError: it is in another partition.
    """
    part = next((name for prefix, name in _OTHERS.items() if place.startswith(prefix)), None)
    if part is not None:
        raise BadRequestError(
            f"{place} is not supported",
            why=f"it belongs to {part}, a separate cloud, whose prices, images and policies kedge doesn't know",
            fix="choose a region of the commercial AWS, for example --region eu-west-1, with an account of it",
        )
