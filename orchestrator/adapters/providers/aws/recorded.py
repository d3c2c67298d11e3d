"""Finds this laptop's own instances by the ids that it noted: their tags can be taken away by anybody in the account.

Such an instance goes on, and bills. It is described with the tags that it was launched with.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from orchestrator.adapters.providers.aws.sweep import Found, find_instances
from orchestrator.adapters.providers.aws.tags import CREATED, DEADLINE, MACHINE, PRICE, RUN, tag_list

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import FilterTypeDef

    from orchestrator.adapters.providers.aws.record import MachineRecord
    from orchestrator.adapters.providers.aws.session import AwsSession


def find_untagged(session: AwsSession, records: Iterable[MachineRecord], found: Sequence[Found]) -> Sequence[Found]:
    """Find the instances of records that a listing by tags hasn't shown; one call for each region that lacks any.

    Args:
        session: the way to AWS.
        records: of the machines that are looked for.
        found: what the listing has shown.

    Raises:
        KedgeError: a region doesn't answer.
    """
    seen = {each.instance["InstanceId"] for each in found}
    missing = {each.instance_id: each for each in records if each.instance_id and each.instance_id not in seen}
    if not missing:
        return ()
    wanted: FilterTypeDef = {"Name": "instance-id", "Values": sorted(missing)}
    listed = find_instances(session, {each.region for each in missing.values()}, wanted)
    return [_as_tagged(each, missing[each.instance["InstanceId"]]) for each in listed]


def _as_tagged(found: Found, record: MachineRecord) -> Found:
    tags = {
        RUN: record.run_id,
        MACHINE: record.id,
        CREATED: record.asked_at.isoformat(),
        DEADLINE: record.deadline_at.isoformat(),
        PRICE: str(record.usd_per_hour),
    }
    return Found(region=found.region, instance={**found.instance, "Tags": tag_list({**tags, **found.tags})})
