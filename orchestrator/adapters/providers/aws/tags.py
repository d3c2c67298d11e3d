"""The tags by which everything of kedge's is found again at AWS."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime

    from mypy_boto3_ec2.literals import ResourceTypeType
    from mypy_boto3_ec2.type_defs import TagSpecificationTypeDef, TagTypeDef
    from mypy_boto3_iam.type_defs import TagTypeDef as IamTagTypeDef

    from orchestrator.core.machine import MachineOrder
    from orchestrator.core.site import Site

RUN = "kedge-run"
MACHINE = "kedge-machine"
CREATED = "kedge-created"
DEADLINE = "kedge-deadline"
PRICE = "kedge-usd-per-hour"
VOLUME = "kedge-volume"
"""A data volume's name within the account."""
AT_END = "kedge-at-end"
"""What becomes of a data volume when the run that used it last is torn down."""


def run_tags(run_id: str, site: Site) -> dict[str, str]:
    """Return the tags of what belongs to a run as a whole: the user's, and kedge's own, which win."""
    return {**dict(site.tags), RUN: run_id, "Name": f"kedge-{run_id}"}


def machine_tags(order: MachineOrder, created: datetime, deadline: datetime) -> dict[str, str]:
    """Return the tags of a machine, its root disk and its network interface."""
    return {
        **dict(order.site.tags),
        RUN: order.run_id,
        MACHINE: order.id,
        CREATED: created.isoformat(),
        DEADLINE: deadline.isoformat(),
        PRICE: str(order.usd_per_hour),
        "Name": order.id,
    }


def user_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """Return the tags that are neither kedge's own nor AWS's."""
    return {key: value for key, value in tags.items() if key != "Name" and not key.startswith(("kedge-", "aws:"))}


def tag_list(tags: Mapping[str, str]) -> list[TagTypeDef]:
    """Write tags as the SDK wants them."""
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def iam_tags(tags: Mapping[str, str]) -> list[IamTagTypeDef]:
    """Write tags as the SDK wants them for IAM."""
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def tag_specifications(tags: Mapping[str, str], *kinds: ResourceTypeType) -> list[TagSpecificationTypeDef]:
    """Give the same tags to every kind of resource that a call makes."""
    return [{"ResourceType": kind, "Tags": tag_list(tags)} for kind in kinds]


def read_tags(listed: Iterable[TagTypeDef] | None) -> dict[str, str]:
    """Read tags as the SDK lists them."""
    return {tag.get("Key", ""): tag.get("Value", "") for tag in listed or ()}
