"""The tags by which kedge finds its resources at AWS again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mypy_boto3_ec2.literals import ResourceTypeType
    from mypy_boto3_ec2.type_defs import TagSpecificationTypeDef, TagTypeDef
    from mypy_boto3_iam.type_defs import TagTypeDef as IamTagTypeDef

    from orchestrator.adapters.cloud.model import Marks
    from orchestrator.core.values.site import Site

RUN = "kedge-run"
MACHINE = "kedge-machine"
CREATED = "kedge-created"
"""The time of the request; a machine's also distinguishes its requests (`ClientToken.attempt`)."""
DEADLINE = "kedge-deadline"
PRICE = "kedge-usd-per-hour"
VOLUME = "kedge-volume"
"""A data volume's name within the account."""
AT_END = "kedge-at-end"
"""What happens to a data volume at the teardown of the run that used it last."""


def run_tags(run_id: str, site: Site) -> dict[str, str]:
    """Return the tags of a run's resources: the user's, overridden by kedge's own."""
    return {**dict(site.tags), RUN: run_id, "Name": f"kedge-{run_id}"}


def machine_tags(marks: Marks) -> dict[str, str]:
    """Return the tags of a machine, its root disk and its network interface."""
    return {
        **dict(marks.extra),
        RUN: marks.run_id,
        MACHINE: marks.machine_id,
        CREATED: marks.attempt,
        DEADLINE: marks.deadline_at.isoformat(),
        PRICE: str(marks.usd_per_hour),
        "Name": marks.machine_id,
    }


def user_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """Return the tags that are neither kedge's own nor AWS's."""
    return {key: value for key, value in tags.items() if key != "Name" and not key.startswith(("kedge-", "aws:"))}


def tag_list(tags: Mapping[str, str]) -> list[TagTypeDef]:
    """Convert tags to the SDK's form."""
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def iam_tags(tags: Mapping[str, str]) -> list[IamTagTypeDef]:
    """Convert tags to the SDK's form for IAM."""
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def tag_specifications(tags: Mapping[str, str], *kinds: ResourceTypeType) -> list[TagSpecificationTypeDef]:
    """Return the tags for each kind of resource that a call creates."""
    return [{"ResourceType": kind, "Tags": tag_list(tags)} for kind in kinds]


def read_tags(listed: Iterable[TagTypeDef] | None) -> dict[str, str]:
    """Convert tags from the SDK's form."""
    return {tag.get("Key", ""): tag.get("Value", "") for tag in listed or ()}
