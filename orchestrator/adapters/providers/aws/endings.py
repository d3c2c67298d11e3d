"""Who ended an instance: AWS says so for the hour or so for which it goes on listing it.

The codes are those of the EC2 user guide's chapter "Troubleshoot Amazon EC2 instance launch issues" and of the API
reference's StateReason (read in November 2026).
"""

from __future__ import annotations

import re
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from orchestrator.adapters.providers.aws.refusal_table import FAILED_STARTS
from orchestrator.adapters.providers.aws.sweep import find_instances, of_instance, of_machine
from orchestrator.adapters.providers.aws.view import see_machine
from orchestrator.core.machine import EndedBy, MachineEnd

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import InstanceTypeDef

    from orchestrator.adapters.providers.aws.tools import Tools

_STARTS_WITHIN = timedelta(minutes=15)
"""Later, `Server.InternalError` is the end of a machine that ran."""
_BY_SOMEBODY = frozenset({"Client.UserInitiatedShutdown", "Client.InstanceTerminated"})
_AT = re.compile(r"\((\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) [A-Z]{3}\)")


def why_ended(tools: Tools, machine_id: str) -> MachineEnd | None:
    """Say who has ended a machine, or is ending it; None for one that lives, or where AWS doesn't say.

    Raises:
        KedgeError: AWS doesn't answer.
    """
    record = tools.records.machine(machine_id)
    regions: Collection[str] = [record.region] if record else tools.known_regions()
    # Of an instance that has ended the tags go first.
    wanted = of_instance(record.instance_id) if record and record.instance_id else of_machine(machine_id)
    found = find_instances(tools.session, regions, wanted)
    if not found:
        return None
    instance = found[0].instance
    deadline = record.deadline_at if record else see_machine(instance, None, tools.key_file).deadline_at
    return see_end(instance, deadline, tools.clock.now())


def see_end(instance: InstanceTypeDef, deadline: datetime, now: datetime) -> MachineEnd | None:
    """Read what has ended an instance out of its description.

    Args:
        instance: as AWS describes it.
        deadline: from then on its schedule ends it: by a call like anybody's.
        now: when it was described.
    """
    reason = instance.get("StateReason", {})
    code = reason.get("Code", "")
    if instance["State"]["Name"] in ("pending", "running") or not code:
        return None
    by = _by(code, since_launch=_ended_at(instance, now) - instance["LaunchTime"])
    if by is EndedBy.SOMEBODY and _ended_at(instance, now) >= deadline:
        by = EndedBy.DEADLINE
    return MachineEnd(by=by, says=reason.get("Message") or code)


def _by(code: str, *, since_launch: timedelta) -> EndedBy:
    if code in FAILED_STARTS and since_launch < _STARTS_WITHIN:
        return EndedBy.START
    if code.startswith("Server."):
        return EndedBy.PROVIDER
    return EndedBy.SOMEBODY if code in _BY_SOMEBODY else EndedBy.ITSELF


def _ended_at(instance: InstanceTypeDef, now: datetime) -> datetime:
    """Read the instant out of "User initiated (2026-11-21 18:02:46 GMT)", where it is there."""
    found = _AT.search(instance.get("StateTransitionReason", ""))
    return datetime.strptime(found[1], "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC) if found else now
