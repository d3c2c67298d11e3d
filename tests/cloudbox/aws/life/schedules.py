"""EventBridge's one-shot schedules: moto stores them, here they fire."""

from __future__ import annotations

import json
import logging
import threading
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from moto.scheduler.models import EventBridgeSchedulerBackend, Schedule, scheduler_backends

from tests.cloudbox.aws.life.identity import find_role
from tests.cloudbox.aws.life.lifecycle import Lifecycle
from tests.cloudbox.aws.wire.answers import AwsError
from tests.cloudbox.aws.wire.call import Call
from tests.cloudbox.aws.wire.moto_state import ACCOUNT

TERMINATE = "arn:aws:scheduler:::aws-sdk:ec2:terminateInstances"
"""The one target that the box carries out."""

_log = logging.getLogger(__name__)
_SERVICE = "scheduler.amazonaws.com"
_EVERY_SECONDS = 0.1
_NEVER = datetime.max.replace(tzinfo=UTC)
_PRECISION = timedelta(minutes=1)
"""With which the scheduler works."""


def check_schedule(call: Call) -> None:
    """Refuse a schedule whose role the scheduler couldn't use, or whose time has passed.

    fact: aws-one-shot-schedules; fact: aws-past-schedules

    Raises:
        AwsError: ValidationException, as AWS words it.
    """
    target: dict[str, Any] = call.params.get("Target") or {}
    role = find_role(target.get("RoleArn", ""))
    if role is None or _SERVICE not in str(role.assume_role_policy_document):
        raise AwsError(
            "ValidationException",
            "The execution role you provide must allow AWS EventBridge Scheduler to assume the role.",
        )
    due = _due(call.params["ScheduleExpression"], call.params.get("ScheduleExpressionTimezone", "UTC"))
    if due < datetime.now(UTC) - _PRECISION:
        raise AwsError("ValidationException", "Invalid Schedule Expression: its time has passed.")


class Scheduler:
    """Fires schedules of the form `at(...)` when their time has come."""

    def __init__(self, lifecycle: Lifecycle) -> None:
        self._lifecycle = lifecycle
        self._fired: set[Schedule] = set()
        self._ahead = timedelta(0)
        self._closed = threading.Event()
        threading.Thread(target=self._run, daemon=True).start()

    def reset(self) -> None:
        """Forget what has fired, and go by the computer's clock again."""
        self._fired.clear()
        self._ahead = timedelta(0)

    def advance(self, ahead: timedelta) -> None:
        """Go by a clock that is this much ahead of the computer's; machines notice nothing of it."""
        self._ahead = ahead

    def close(self) -> None:
        """Fire nothing any more."""
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.wait(_EVERY_SECONDS):
            for backend in list(scheduler_backends[ACCOUNT].values()):
                for schedule in _enabled(backend):
                    if schedule not in self._fired and _due_at(schedule) <= datetime.now(UTC) + self._ahead:
                        self._fire(backend, schedule)

    def _fire(self, backend: EventBridgeSchedulerBackend, schedule: Schedule) -> None:
        self._fired.add(schedule)
        if schedule.target["Arn"] == TERMINATE:
            wanted = json.loads(schedule.target.get("Input", "{}")).get("InstanceIds", [])
            try:
                self._lifecycle.terminate(wanted, "Client.UserInitiatedShutdown", "User initiated shutdown")
            except LookupError as err:
                _log.warning("schedule %s: %s", schedule.name, err)
        if schedule.action_after_completion == "DELETE":
            backend.delete_schedule(schedule.group_name, schedule.name)


def _enabled(backend: EventBridgeSchedulerBackend) -> list[Schedule]:
    groups = list(backend.schedule_groups.values())
    return [one for group in groups for one in list(group.schedules.values()) if one.state == "ENABLED"]


def _due_at(schedule: Schedule) -> datetime:
    return _due(schedule.schedule_expression, schedule.schedule_expression_timezone)


def _due(expression: str, timezone: str) -> datetime:
    if not expression.startswith("at("):
        return _NEVER
    moment = datetime.fromisoformat(expression.removeprefix("at(").removesuffix(")"))
    return moment.replace(tzinfo=ZoneInfo(timezone))
