"""`Schedules`: the `DeadlineGuard` of AWS, made of EventBridge schedules."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from orchestrator.adapters.host.ids import fit
from orchestrator.adapters.providers.aws.run_resources import schedule

if TYPE_CHECKING:
    from orchestrator.adapters.providers.aws.access.session import AwsSession
    from orchestrator.adapters.providers.aws.account.level import Account


class Schedules:
    """The schedules of one account's machines; implements `DeadlineGuard`."""

    noun = "schedule"
    # AWS may refuse a schedule in the past, or never carry it out (inferred: aws-past-schedules).
    soonest = timedelta(minutes=2) - schedule.LATER

    def __init__(self, session: AwsSession, account: Callable[[], Account]) -> None:
        self._session = session
        self._account = account

    def arm(self, machine_id: str, instance_id: str, region: str, deadline_at: datetime) -> None:
        """Have AWS end an instance soon after its deadline."""
        client = self._session.client("scheduler", region)
        schedule.arm(client, machine_id, instance_id, deadline_at, self._account().scheduler_role_arn)

    def move(self, machine_id: str, instance_id: str, region: str, deadline_at: datetime) -> None:
        """Change an instance's schedule to another deadline."""
        client = self._session.client("scheduler", region)
        schedule.move(client, machine_id, instance_id, deadline_at, self._account().scheduler_role_arn)

    def disarm(self, machine_id: str, region: str) -> bool:
        """Delete a machine's schedule; False if there was none."""
        return schedule.disarm(self._session.client("scheduler", region), machine_id)

    def disarm_run(self, run_id: str, region: str, machine_ids: Collection[str] | None) -> Sequence[str]:
        """Delete the schedules of a run's machines (None: of all it may have had), and return their names."""
        client = self._session.client("scheduler", region)
        if machine_ids is None:
            return schedule.disarm_run(client, run_id)
        return [fit(machine_id) for machine_id in machine_ids if schedule.disarm(client, machine_id)]

    def list_machines(self, region: str) -> Sequence[tuple[str, str]]:
        """List kedge's schedules of a region, each with the machine that it ends."""
        return schedule.list_machines(self._session.client("scheduler", region))
