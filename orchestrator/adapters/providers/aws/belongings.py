"""What a run has besides machines: its role, and its security group in each region; made with its first machine."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from orchestrator.adapters.providers.aws.identity import make_identity, remove_identity
from orchestrator.adapters.providers.aws.naming import role_name
from orchestrator.adapters.providers.aws.network import make_group, open_to, remove_groups
from orchestrator.adapters.providers.aws.schedule import disarm_run
from orchestrator.adapters.providers.aws.sdk import translate
from orchestrator.adapters.providers.aws.volume_ends import end_volumes

if TYPE_CHECKING:
    from orchestrator.adapters.providers.aws.account import Account
    from orchestrator.adapters.providers.aws.record import Group
    from orchestrator.adapters.providers.aws.tools import Tools

_log = logging.getLogger(__name__)

_LET_GO_IN = timedelta(minutes=2)
"""How long AWS may take to take a group from a machine that has ended."""


def ensure_belongings(tools: Tools, run_id: str, region: str, account: Account, ssh_from: str) -> tuple[Group, bool]:
    """Make what is missing, and open port 22 to the caller's present address.

    No call where the record says that everything is there.

    Returns:
        The region's group, and whether the role or the group is new.

    Raises:
        KedgeError: AWS doesn't allow it.
    """
    record = tools.records.run(run_id)
    is_new = not record.role or region not in record.groups
    if not record.role:
        make_identity(tools.session.client("iam"), run_id, account, tools.clock)
        _log.info("made role %s", role_name(run_id))
        record = replace(record, role=True, account=tools.account_id())
        tools.records.keep_run(record)
    group = _group(tools, run_id, region, record.groups.get(region), ssh_from)
    if record.groups.get(region) != group:
        tools.records.keep_run(replace(record, groups={**record.groups, region: group}, account=tools.account_id()))
    return group, is_new


def reopen(tools: Tools, run_id: str, region: str, ssh_from: str) -> bool:
    """Open port 22 of a run's machines to another address than the one that its record has; True when it was another.

    No call where the record has this one. A range of several addresses was somebody's choice, and stays.

    Raises:
        KedgeError: AWS doesn't allow it, or the group is gone.
    """
    record = tools.records.run(run_id)
    known = record.groups.get(region)
    if known is None or known.ssh_from == ssh_from or not known.ssh_from.endswith(("/32", "/128")):
        return False
    group = _group(tools, run_id, region, known, ssh_from)
    tools.records.keep_run(replace(record, groups={**record.groups, region: group}))
    _log.info("port 22 of run %s is open to %s now, no longer to %s", run_id, ssh_from, known.ssh_from)
    return True


def note_volumes(tools: Tools, run_id: str, region: str) -> None:
    """Remember that a run uses data volumes of a region, before any is made there."""
    record = tools.records.run(run_id)
    if region not in record.volumes:
        tools.records.keep_run(replace(record, volumes=(*record.volumes, region), account=tools.account_id()))


def remove_belongings(tools: Tools, run_id: str, regions: Sequence[str]) -> Sequence[str]:
    """Remove it all, and settle the run's data volumes; what is gone already is no error.

    Returns:
        What was removed or kept, one line each.

    Raises:
        KedgeError: AWS doesn't allow it; the rest is tried again by the next call.
    """
    lines: list[str] = []
    for region in regions:
        ec2 = tools.session.client("ec2", region)
        schedules = disarm_run(tools.session.client("scheduler", region), run_id)
        lines += [f"removed schedule {name} in {region}" for name in schedules]
        lines += end_volumes(ec2, run_id, tools.clock)
        lines += remove_groups(ec2, run_id, tools.clock, _LET_GO_IN)
    if remove_identity(tools.session.client("iam"), run_id):
        lines.append(f"removed role {role_name(run_id)}")
    return lines


def _group(tools: Tools, run_id: str, region: str, known: Group | None, ssh_from: str) -> Group:
    ec2 = tools.session.client("ec2", region)
    if known is None:
        return make_group(ec2, run_id, ssh_from, tools.clock)
    try:
        return open_to(ec2, known, ssh_from)
    except (ClientError, BotoCoreError) as err:
        raise translate(err, f"machines of run {run_id} can't be opened to {ssh_from}") from err
