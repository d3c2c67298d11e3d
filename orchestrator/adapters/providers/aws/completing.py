"""Completes a machine that EC2 has made: its record, its deadline out of band, its disks; or ends it again."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from orchestrator.adapters.providers.aws import schedule
from orchestrator.adapters.providers.aws.attaching import DataVolume, attach_volumes
from orchestrator.adapters.providers.aws.endings import why_ended
from orchestrator.adapters.providers.aws.volumes import drop_new
from orchestrator.core.errors import KedgeError, NoCapacityError, StillBillingError
from orchestrator.core.machine import EndedBy

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_ec2.type_defs import InstanceTypeDef

    from orchestrator.adapters.providers.aws.tools import Tools
    from orchestrator.core.machine import MachineOrder

_log = logging.getLogger(__name__)


def complete_instance(
    tools: Tools, order: MachineOrder, instance: InstanceTypeDef, volumes: tuple[DataVolume, ...]
) -> None:
    """See that an instance has its record, its schedule and its disks; else it is ended again.

    Raises:
        NoCapacityError: AWS ended it at its start; nothing is left.
        StillBillingError: it can't be ended.
        KedgeError: anything else; nothing is left.
    """
    instance_id = instance["InstanceId"]
    record = tools.records.machine(order.id)
    if record is not None:
        tools.records.keep_machine(replace(record, instance_id=instance_id, unclear_since=None))
    ec2 = tools.session.client("ec2", order.region)
    deadline = instance["LaunchTime"] + timedelta(seconds=order.lifetime_seconds)
    try:
        schedule.arm(
            tools.session.client("scheduler", order.region),
            order.id,
            instance_id,
            deadline,
            tools.account().scheduler_role_arn,
        )
        attach_volumes(ec2, instance_id, order.run_id, volumes, tools.clock)
    except KedgeError as err:
        failed = _failed_start(tools, order)
        _end_again(ec2, order, instance_id, err)
        if failed is not None:
            drop_new(ec2, volumes, tools.clock)
            _disarm(tools, order)
            raise failed from err
        raise


def _failed_start(tools: Tools, order: MachineOrder) -> NoCapacityError | None:
    """Return what to raise where AWS ended the machine at its start: elsewhere it may start."""
    end = why_ended(tools, order.id)
    if end is None or end.by is not EndedBy.START:
        return None
    return NoCapacityError(f"machine {order.id} could not be started", why=end.says, fix="try again later")


def _end_again(ec2: EC2Client, order: MachineOrder, instance_id: str, cause: KedgeError) -> None:
    _log.warning("machine %s is ended again: %s", order.id, cause.what)
    try:
        ec2.terminate_instances(InstanceIds=[instance_id])
    except (ClientError, BotoCoreError) as err:
        raise StillBillingError(
            f"machine {order.id} can't be completed, nor ended",
            why=f"{cause.what}; then: {' '.join(str(err).split())}",
            fix=f"run `kedge teardown {order.run_id}`; it ends itself at its deadline all the same",
        ) from err


def _disarm(tools: Tools, order: MachineOrder) -> None:
    """Take the schedule away: the next offer may be in another region, and the record is that machine's then."""
    try:
        schedule.disarm(tools.session.client("scheduler", order.region), order.id)
    except KedgeError as err:
        # It would only end what has ended, and then remove itself.
        _log.warning("%s", err.what)
