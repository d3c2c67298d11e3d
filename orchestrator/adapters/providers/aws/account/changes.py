"""Describes a CloudFormation change set in words: one line for each resource and each setting."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from mypy_boto3_cloudformation.type_defs import ChangeTypeDef, ResourceChangeTypeDef

Sign = Literal["+", "~", "-"]

_SIGNS: Mapping[str, Sign] = {"Add": "+", "Remove": "-"}
_RESOURCES = {
    "Bucket": "bucket for code, checkpoints, results and data sets",
    "BucketPolicy": "policy of the bucket: TLS only",
    "RunBoundary": "policy kedge-run-boundary: the most that a machine of a run may do",
    "SchedulerRole": "role kedge-scheduler: ends machines that are past their deadline",
    "SharedRunRole": "role kedge-runs for all runs: each can read and change the results of every other run",
    "Budget": "budget alarm, as a part of the stack",
    "SharedRunProfile": "instance profile kedge-runs, which gives machines that role",
}
_SETTINGS = {
    "RunDays": "days after which what runs left is deleted",
    "ReadBuckets": "other buckets that runs may read where their job names them",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One line of a plan for the account: `+` is created, `~` is changed, `-` is deleted."""

    sign: Sign
    says: str


def list_changes(
    changes: Iterable[ChangeTypeDef], present: Mapping[str, str], wanted: Mapping[str, str]
) -> tuple[Change, ...]:
    """Describe a change set.

    Args:
        changes: from a change set's description.
        present: the stack's parameters; empty for a new stack.
        wanted: the parameters that the change set sets.
    """
    resources = [_describe(change["ResourceChange"], wanted) for change in changes if "ResourceChange" in change]
    settings = [
        Change(sign="~", says=f"{words}: {present[name] or 'none'} -> {wanted[name] or 'none'}")
        for name, words in _SETTINGS.items()
        if name in present and present[name] != wanted.get(name)
    ]
    return (*resources, *settings) or (Change(sign="~", says="what the stack says of itself; no resource changes"),)


def describe_resource(logical_id: str, physical_id: str = "") -> str:
    """Say what a resource of account.yaml is, with its name if that says more."""
    words = _RESOURCES.get(logical_id, logical_id)
    return f"{words}: {physical_id}" if physical_id and logical_id == "Bucket" else words


def _describe(change: ResourceChangeTypeDef, wanted: Mapping[str, str]) -> Change:
    words = describe_resource(
        change["LogicalResourceId"], change.get("PhysicalResourceId", "") or wanted.get("BucketName", "")
    )
    action = change["Action"]
    if action == "Import":
        words += " (it exists already and is imported)"
    elif change.get("Replacement") == "True":
        words += " (replaced)"
    return Change(sign=_SIGNS.get(action, "~"), says=words)
