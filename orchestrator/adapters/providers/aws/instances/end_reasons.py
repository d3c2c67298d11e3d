"""Who ended an instance: AWS tells for about an hour, while it still lists the instance.

The codes are those of the EC2 user guide's chapter "Troubleshoot Amazon EC2 instance launch issues" and of the API
reference's StateReason (read in November 2026).
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from orchestrator.adapters.cloud.model import EndReason, Phase
from orchestrator.adapters.providers.aws.refusal_table import FAILED_STARTS
from orchestrator.core.machine import EndedBy, MachineEnd

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import InstanceTypeDef

    from orchestrator.adapters.cloud.model import Instance

_STARTS_WITHIN = timedelta(minutes=15)
"""After this time, `Server.InternalError` means the end of a machine that ran."""
_BY_SOMEBODY = frozenset({"Client.UserInitiatedShutdown", "Client.InstanceTerminated"})
_AT = re.compile(r"\((\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) [A-Z]{3}\)")


def explain_end(instance: Instance, deadline_at: datetime, now: datetime) -> MachineEnd | None:
    """Read what has ended an instance, or is ending it; None if it lives, or if AWS doesn't say.

    Args:
        instance: as AWS describes it.
        deadline_at: after this its schedule ends it, by a call like any user's.
        now: when it was described.
    """
    reason = instance.end
    if instance.phase in (Phase.PENDING, Phase.RUNNING) or reason is None:
        return None
    ended_at = reason.at or now
    by = _by(reason.code, since_launch=ended_at - instance.created_at)
    if by is EndedBy.SOMEBODY and ended_at >= deadline_at:
        by = EndedBy.DEADLINE
    return MachineEnd(by=by, says=reason.says)


def parse_reason(fields: InstanceTypeDef) -> EndReason | None:
    """Read the reason for an instance's state; a running instance may still show that of an earlier stop."""
    reason = fields.get("StateReason", {})
    code = reason.get("Code", "")
    if not code:
        return None
    return EndReason(code=code, says=reason.get("Message") or code, at=_at(fields.get("StateTransitionReason", "")))


def _by(code: str, *, since_launch: timedelta) -> EndedBy:
    if code in FAILED_STARTS and since_launch < _STARTS_WITHIN:
        return EndedBy.START
    if code.startswith("Server."):
        return EndedBy.PROVIDER
    return EndedBy.SOMEBODY if code in _BY_SOMEBODY else EndedBy.ITSELF


def _at(transition: str) -> datetime | None:
    """Parse the instant in "User initiated (2026-11-21 18:02:46 GMT)"; None if there is none."""
    found = _AT.search(transition)
    try:
        return datetime.strptime(found[1], "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC) if found else None
    except ValueError:
        return None
