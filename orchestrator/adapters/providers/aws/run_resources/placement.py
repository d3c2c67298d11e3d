"""A run's cluster placement groups: several machines in one are close to each other, and have one zone."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from orchestrator.adapters.aws_sdk import FORBIDDEN, code_of, translate
from orchestrator.adapters.host.retry import retry
from orchestrator.adapters.providers.aws.tags import RUN, read_tags, run_tags, tag_specifications
from orchestrator.core.errors import ConflictError
from orchestrator.core.sweep import Leftover

if TYPE_CHECKING:
    from datetime import timedelta

    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_ec2.type_defs import PlacementGroupTypeDef

    from orchestrator.core.ports import Clock
    from orchestrator.core.values.site import Site


def make_placement(ec2: EC2Client, name: str, run_id: str, site: Site) -> bool:
    """Create a run's placement group; return False if it is there.

    Raises:
        ConflictError: somebody else's group has the name.
        KedgeError: AWS doesn't allow it.
    """
    try:
        ec2.create_placement_group(
            GroupName=name,
            Strategy="cluster",
            TagSpecifications=tag_specifications(run_tags(run_id, site), "placement-group"),
        )
    except ClientError as err:
        # fact: aws-placement-names
        if code_of(err) != "InvalidPlacementGroup.Duplicate":
            raise translate(err, f"the placement group of run {run_id} can't be made") from err
        _refuse_foreign(ec2, name, run_id)
        return False
    except BotoCoreError as err:
        raise translate(err, f"the placement group of run {run_id} can't be made") from err
    return True


def remove_placements(
    ec2: EC2Client, run_id: str, clock: Clock, patience: timedelta, *, known: Sequence[str] | None
) -> Sequence[str]:
    """Delete a run's placement groups in a region: the known ones, or all with its tag; return a line for each.

    AWS refuses to delete a group while an ending machine is in it. Somebody whose policy is of an earlier kedge may not
    be allowed to list any: a run can be released nevertheless, since groups cost nothing.

    Raises:
        KedgeError: AWS doesn't allow it.
    """
    if known is not None and not known:
        return ()
    try:
        names = _find_own(ec2, run_id, known)
    except (ClientError, BotoCoreError) as err:
        failed = translate(err, f"the placement groups of run {run_id} can't be listed")
        if not (isinstance(err, ClientError) and code_of(err) in FORBIDDEN):
            raise failed from err
        return [f"kept placement groups of run {run_id} in {ec2.meta.region_name}, if there are any: {failed.why}"]
    try:
        removed = [
            name for name in names if retry(partial(_delete, ec2, name), on=_is_used, within=patience, clock=clock)
        ]
    except (ClientError, BotoCoreError) as err:
        raise translate(err, f"the placement group of run {run_id} can't be removed") from err
    return [f"removed placement group {name} in {ec2.meta.region_name}" for name in removed]


def placement_leftovers(ec2: EC2Client) -> Sequence[Leftover]:
    """List the placement groups of runs in the client's region.

    Raises:
        KedgeError: EC2 refuses, or doesn't answer.
    """
    region = ec2.meta.region_name
    try:
        found = _find(ec2, "tag-key", RUN)
    except (ClientError, BotoCoreError) as err:
        raise translate(err, f"placement groups in {region} can't be listed") from err
    return [Leftover(kind="placement group", name=name, run_id=run_id, region=region) for name, run_id in found]


def _find_own(ec2: EC2Client, run_id: str, known: Sequence[str] | None) -> list[str]:
    """Find a run's groups by its tag. A known one stays only if it turns out to be somebody else's."""
    if known is None:
        return [name for name, _ in _find(ec2, f"tag:{RUN}", run_id)]
    owners = {name: owner for each in known for name, owner in _find(ec2, "group-name", each)}
    return [name for name in known if owners.get(name, run_id) == run_id]


def _find(ec2: EC2Client, filtered: str, value: str) -> list[tuple[str, str]]:
    """Find placement groups as (name, run)."""
    answer = ec2.describe_placement_groups(Filters=[{"Name": filtered, "Values": [value]}])
    return [_named(group) for group in answer["PlacementGroups"] if group.get("State") not in ("deleting", "deleted")]


def _named(group: PlacementGroupTypeDef) -> tuple[str, str]:
    return group.get("GroupName", ""), read_tags(group.get("Tags")).get(RUN, "")


def _refuse_foreign(ec2: EC2Client, name: str, run_id: str) -> None:
    """Refuse somebody else's group with the run's name."""
    try:
        found = _find(ec2, "group-name", name)
    except (ClientError, BotoCoreError) as err:
        raise translate(err, f"the placement group {name} can't be looked up") from err
    if any(owner != run_id for _, owner in found):
        raise ConflictError(
            f"the placement group {name} isn't kedge's",
            why=f"it lacks the tag {RUN}={run_id}",
            fix="delete or rename it, then launch again",
        )


def _delete(ec2: EC2Client, name: str) -> bool:
    """Delete a group; False if there was none."""
    try:
        ec2.delete_placement_group(GroupName=name)
    except ClientError as err:
        if code_of(err) != "InvalidPlacementGroup.Unknown":
            raise
        return False
    return True


def _is_used(err: BaseException) -> bool:
    return isinstance(err, ClientError) and code_of(err) == "InvalidPlacementGroup.InUse"
