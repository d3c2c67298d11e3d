"""A machine's deadline at AWS: a one-shot schedule that ends it, whatever laptop and machine do.

EventBridge Scheduler calls TerminateInstances itself, with the account's scheduler role.
"""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from orchestrator.adapters.aws_sdk import code_of, translate
from orchestrator.adapters.cloud.idempotency import token_of
from orchestrator.adapters.host.ids import fit

if TYPE_CHECKING:
    from mypy_boto3_scheduler import EventBridgeSchedulerClient
    from mypy_boto3_scheduler.type_defs import CreateScheduleInputTypeDef, ScheduleSummaryTypeDef

LATER = timedelta(minutes=5)
"""Delay after the deadline: a machine first ends itself, with its results in the store; this ends one that can't."""

_ENDS, _AFTER = "kedge: ends machine ", " after its deadline"
"""A schedule's description contains the machine's id, which may be longer than a schedule's name."""

_TRIES = 20
"""Retries of the schedule's call; AWS spreads them over the hour below."""
_TRY_FOR_SECONDS = 3600
_MOST_MACHINES = 1000
_ENDS_INSTANCES = ":scheduler:::aws-sdk:ec2:terminateInstances"
"""The end of the target's ARN, in every partition."""
_COMMON = 47
"""How many characters of a long name `host.ids.fit` keeps unchanged."""


def arm(
    client: EventBridgeSchedulerClient, machine_id: str, instance_id: str, deadline_at: datetime, role_arn: str
) -> None:
    """Have AWS end an instance soon after its deadline; a machine's earlier schedule is replaced.

    Raises:
        KedgeError: AWS refuses.
    """
    request = _request(machine_id, instance_id, deadline_at + LATER, role_arn)
    try:
        _put(client, request)
    except (ClientError, BotoCoreError) as err:
        raise translate(err, f"machine {machine_id} can't be given its deadline at AWS") from err


def move(
    client: EventBridgeSchedulerClient, machine_id: str, instance_id: str, deadline_at: datetime, role_arn: str
) -> None:
    """Change a machine's schedule to another deadline; create it if there is none.

    A creation comes second: with the token of an earlier creation AWS may answer as it did then, and change nothing
    (inferred: aws-schedule-token).

    Raises:
        KedgeError: AWS refuses.
    """
    request = _request(machine_id, instance_id, deadline_at + LATER, role_arn)
    change: CreateScheduleInputTypeDef = {**request, "ClientToken": secrets.token_hex(16)}
    try:
        with _gone_is_fine():
            client.update_schedule(**change)
            return
        client.create_schedule(**request)
    except (ClientError, BotoCoreError) as err:
        raise translate(err, f"the deadline of machine {machine_id} can't be moved at AWS") from err


def disarm(client: EventBridgeSchedulerClient, machine_id: str) -> bool:
    """Delete a machine's schedule, and tell whether there was one: it may be gone, or have fired.

    Raises:
        KedgeError: AWS doesn't confirm that it is gone.
    """
    try:
        with _gone_is_fine():
            client.delete_schedule(Name=fit(machine_id))
            return True
    except (ClientError, BotoCoreError) as err:
        raise translate(err, f"the schedule of machine {machine_id} can't be removed") from err
    return False


def read_back(client: EventBridgeSchedulerClient, machine_id: str, instance_id: str) -> datetime | None:
    """Return when a machine's schedule fires; None if it has none that ends this instance.

    Raises:
        KedgeError: AWS doesn't tell.
    """
    try:
        with _gone_is_fine():
            found = client.get_schedule(Name=fit(machine_id))
            ends = instance_id in found["Target"].get("Input", "")
            at = found["ScheduleExpression"].removeprefix("at(").removesuffix(")")
            return datetime.fromisoformat(at).replace(tzinfo=UTC) if ends else None
    except (ClientError, BotoCoreError) as err:
        raise translate(err, f"the schedule of machine {machine_id} can't be read") from err
    return None


def disarm_run(client: EventBridgeSchedulerClient, run_id: str) -> Sequence[str]:
    """Delete the schedules of all machines that a run has had; return their names.

    Raises:
        KedgeError: AWS doesn't confirm that they are gone.
    """
    removed = []
    try:
        pages = client.get_paginator("list_schedules").paginate(NamePrefix=fit(f"{run_id}-m")[:_COMMON])
        listed = {item.get("Name", "") for page in pages for item in page["Schedules"]}
        # A shortened name may begin like one of another run, whose deadline must stay.
        for name in sorted(listed & {fit(f"{run_id}-m{number}") for number in range(1, _MOST_MACHINES)}):
            with _gone_is_fine():
                client.delete_schedule(Name=name)
            removed.append(name)
    except (ClientError, BotoCoreError) as err:
        raise translate(err, f"the schedules of run {run_id} can't be removed") from err
    return removed


def list_machines(client: EventBridgeSchedulerClient) -> Sequence[tuple[str, str]]:
    """List kedge's schedules in a region as (name, machine that it ends).

    Raises:
        KedgeError: AWS doesn't tell.
    """
    try:
        pages = client.get_paginator("list_schedules").paginate()
        names = [item["Name"] for page in pages for item in page["Schedules"] if _ends_machines(item)]
        described = [(name, _describe(client, name)) for name in names]
    except (ClientError, BotoCoreError) as err:
        raise translate(err, f"the schedules in {client.meta.region_name} can't be listed") from err
    return [(name, text.removeprefix(_ENDS).removesuffix(_AFTER)) for name, text in described if text.startswith(_ENDS)]


def _describe(client: EventBridgeSchedulerClient, name: str) -> str:
    """Return a schedule's description; empty if it has fired since it was listed."""
    with _gone_is_fine():
        return client.get_schedule(Name=name).get("Description", "")
    return ""


def _ends_machines(item: ScheduleSummaryTypeDef) -> bool:
    """Tell from the listing alone whether a schedule may be kedge's, to save a request for each of the others."""
    return item.get("GroupName") == "default" and item.get("Target", {}).get("Arn", "").endswith(_ENDS_INSTANCES)


def _put(client: EventBridgeSchedulerClient, request: CreateScheduleInputTypeDef) -> None:
    try:
        client.create_schedule(**request)
    except ClientError as err:
        if code_of(err) != "ConflictException":
            raise
        # A killed command created it, perhaps for an instance that is gone.
        client.update_schedule(**request)


def _request(machine_id: str, instance_id: str, at: datetime, role_arn: str) -> CreateScheduleInputTypeDef:
    partition = role_arn.split(":")[1]
    return {
        "Name": fit(machine_id),
        "Description": f"{_ENDS}{machine_id}{_AFTER}",
        "ScheduleExpression": f"at({at:%Y-%m-%dT%H:%M:%S})",
        "ScheduleExpressionTimezone": "UTC",
        "FlexibleTimeWindow": {"Mode": "OFF"},
        "ActionAfterCompletion": "DELETE",
        "ClientToken": token_of(machine_id, instance_id, at.isoformat()),
        "Target": {
            "Arn": f"arn:{partition}{_ENDS_INSTANCES}",
            "RoleArn": role_arn,
            "Input": json.dumps({"InstanceIds": [instance_id]}),
            "RetryPolicy": {"MaximumRetryAttempts": _TRIES, "MaximumEventAgeInSeconds": _TRY_FOR_SECONDS},
        },
    }


@contextlib.contextmanager
def _gone_is_fine() -> Iterator[None]:
    try:
        yield
    except ClientError as err:
        if code_of(err) != "ResourceNotFoundException":
            raise
