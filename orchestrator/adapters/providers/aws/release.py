"""Takes away what a run has besides machines: schedules, data volumes as they say, security groups, its role.

What this laptop's records tell isn't looked for: a run that was made here has what they say and nothing else, unless a
sweep of the account has found more.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from orchestrator.adapters.ids import fit
from orchestrator.adapters.providers.aws.identity import has_identity, remove_identity
from orchestrator.adapters.providers.aws.naming import role_name
from orchestrator.adapters.providers.aws.network import remove_groups
from orchestrator.adapters.providers.aws.record import RunRecord
from orchestrator.adapters.providers.aws.schedule import disarm, disarm_run
from orchestrator.adapters.providers.aws.volume_ends import end_volumes

if TYPE_CHECKING:
    from orchestrator.adapters.providers.aws.tools import Tools

_LET_GO_IN = timedelta(minutes=2)
"""How long AWS may take to take a group from a machine that has ended."""


def remove_belongings(tools: Tools, run_id: str, regions: Sequence[str]) -> Sequence[str]:
    """Remove it all, and settle the run's data volumes; what is gone already is no error.

    Returns:
        What was removed or kept, one line each.

    Raises:
        KedgeError: AWS doesn't allow it; the rest is tried again by the next call.
    """
    record = _full_record(tools, run_id)
    lines: list[str] = []
    for region in regions:
        ec2 = tools.session.client("ec2", region)
        schedules = _remove_schedules(tools, run_id, region, record)
        lines += [f"removed schedule {name} in {region}" for name in schedules]
        if record is None or region in record.volumes:
            lines += end_volumes(ec2, run_id, tools.clock)
        known = record.groups.get(region) if record else None
        lines += remove_groups(ec2, run_id, tools.clock, _LET_GO_IN, known=known)
    if _has_own_role(tools, run_id, record) and remove_identity(tools.session.client("iam"), run_id):
        lines.append(f"removed role {role_name(run_id)}")
    return lines


def _has_own_role(tools: Tools, run_id: str, record: RunRecord | None) -> bool:
    """Tell whether a run may have a role of its own; who uses the role of all runs may not be allowed to remove any."""
    if record is not None:
        return not record.shared_role
    return not tools.account().shared_role or has_identity(tools.session.client("iam"), run_id)


def _full_record(tools: Tools, run_id: str) -> RunRecord | None:
    """Return a run's record, unless there may be more of the run than it tells."""
    record = tools.records.run(run_id)
    return record if record.role and run_id not in tools.swept else None


def _remove_schedules(tools: Tools, run_id: str, region: str, record: RunRecord | None) -> Sequence[str]:
    client = tools.session.client("scheduler", region)
    if record is None:
        return disarm_run(client, run_id)
    machines = (each for each in tools.records.machines() if (each.run_id, each.region) == (run_id, region))
    return [fit(each.id) for each in machines if each.armed and disarm(client, each.id)]
