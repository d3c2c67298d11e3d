"""What a machine lacks whose creator may have died before it was complete: its deadline out of band, and its disks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from orchestrator.adapters.providers.aws import schedule
from orchestrator.adapters.providers.aws.attaching import attach_volumes
from orchestrator.adapters.providers.aws.sweep import Found, present
from orchestrator.adapters.providers.aws.view import see_machine, see_unlisted
from orchestrator.adapters.providers.aws.volumes import known_volumes
from orchestrator.core.errors import KedgeError

if TYPE_CHECKING:
    from orchestrator.adapters.providers.aws.record import MachineRecord
    from orchestrator.adapters.providers.aws.tools import Tools

_YOUNG = ("pending", "running")
_SOONEST = timedelta(minutes=2)
"""From now on, for a machine that should have ended already: AWS may refuse a schedule whose time has passed, or never
carry it out (inferred: aws-past-schedules)."""


def guard_machine(tools: Tools, machine_id: str, found: Sequence[Found]) -> None:
    """Arm a machine's schedule and attach its data volumes, as its creation would have done; nothing for one that ends.

    Which volumes it is to have is known to the laptop alone that asked for it.

    Args:
        tools: the way to AWS.
        machine_id: the machine.
        found: the instances that AWS lists for it.

    Raises:
        KedgeError: AWS doesn't list it yet, doesn't take the schedule, or doesn't attach a volume.
    """
    living = next(iter(present(found)), None)
    record = tools.records.machine(machine_id)
    if living is not None:
        machine = see_machine(living.instance, None, tools.key_file)
        _arm(tools, machine_id, living.region, machine.provider_id, machine.deadline_at)
        if living.instance["State"]["Name"] in _YOUNG:
            _attach(tools, living.region, machine.provider_id, record)
    elif not found and record is not None:
        _guard_unlisted(tools, record)


def _guard_unlisted(tools: Tools, record: MachineRecord) -> None:
    if see_unlisted(record, tools.clock.now()) is None:
        return
    if not record.instance_id:
        raise KedgeError(
            f"machine {record.id} can't be given its deadline at AWS yet",
            why="it was asked for a moment ago, and AWS doesn't list it so far",
            fix="look again in a minute with `kedge status`",
        )
    _arm(tools, record.id, record.region, record.instance_id, record.deadline_at)


def _attach(tools: Tools, region: str, instance_id: str, record: MachineRecord | None) -> None:
    if record is not None and record.volumes:
        ec2 = tools.session.client("ec2", region)
        attach_volumes(ec2, instance_id, record.run_id, known_volumes(ec2, record.volumes), tools.clock)


def _arm(tools: Tools, machine_id: str, region: str, instance_id: str, deadline: datetime) -> None:
    client = tools.session.client("scheduler", region)
    if record := tools.records.machine(machine_id):
        tools.records.keep_machine(replace(record, armed=True))
    at_earliest = tools.clock.now() + _SOONEST - schedule.LATER
    schedule.arm(client, machine_id, instance_id, max(deadline, at_earliest), tools.account().scheduler_role_arn)
