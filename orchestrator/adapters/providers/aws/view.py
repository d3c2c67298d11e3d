"""What an instance looks like as a machine of kedge's.

A stopped instance counts as ending: it computes nothing and its disks still bill, so that only its end settles it. A
machine that this laptop has no record of can be seen and ended; its address isn't given, since nobody here knows its
host key.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.adapters.providers.aws.tags import CREATED, DEADLINE, MACHINE, PRICE, RUN, read_tags
from orchestrator.core.job import DEFAULT_DEADLINE
from orchestrator.core.machine import CLOUD_ADMIN, CLOUD_ROOT, CLOUD_USER, Machine, MachineState, SshAddress

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import InstanceTypeDef

    from orchestrator.adapters.providers.aws.record import MachineRecord

NAME = "aws"

SETTLES_IN = timedelta(seconds=90)
"""From the request on: how long it may be sent again, and then take until AWS lists the instance (the EC2 developer
guide's chapter on eventual consistency speaks of seconds and advises to look for longer; read in November 2026)."""

UNCLEAR_FOR = timedelta(minutes=15)
"""From the last request on, where no answer of AWS's has told whether it made the machine: as long does it count as
one. Much longer than listing takes, since a second machine would be the price of giving it up too early."""

_SSH = 22
_STATES = {
    "pending": MachineState.BOOTING,
    "running": MachineState.READY,
    "shutting-down": MachineState.ENDING,
    "stopping": MachineState.ENDING,
    "stopped": MachineState.ENDING,
    "terminated": MachineState.GONE,
}


def see_machine(instance: InstanceTypeDef, record: MachineRecord | None, key_file: Path) -> Machine:
    """Describe an instance; the record is this laptop's, if it has one."""
    tags = read_tags(instance.get("Tags"))
    created = instance["LaunchTime"].astimezone(UTC)
    address = _address(instance, record, key_file)
    state = _STATES.get(instance["State"]["Name"], MachineState.UNKNOWN)
    if state is MachineState.READY and not _host(instance, record):
        state = MachineState.BOOTING
    return Machine(
        id=tags.get(MACHINE, ""),
        run_id=tags.get(RUN, ""),
        provider=NAME,
        provider_id=instance["InstanceId"],
        state=state,
        root=CLOUD_ROOT,
        created_at=created,
        deadline_at=created + _lifetime(tags),
        usd_per_hour=_price(tags.get(PRICE, "")),
        address=address,
        region=instance["Placement"]["AvailabilityZone"].rstrip("abcdefghijklmnopqrstuvwxyz"),
        gpus=record.gpus if record else 0,
    )


def see_unlisted(record: MachineRecord, now: datetime) -> Machine | None:
    """Describe a machine that was asked for and that AWS doesn't list; None once it would have listed it."""
    if not may_exist(record, now):
        return None
    return Machine(
        id=record.id,
        run_id=record.run_id,
        provider=NAME,
        provider_id=record.instance_id,
        state=MachineState.BOOTING if record.instance_id else MachineState.UNKNOWN,
        root=CLOUD_ROOT,
        created_at=record.asked_at,
        deadline_at=record.deadline_at,
        usd_per_hour=record.usd_per_hour,
        region=record.region,
        gpus=record.gpus,
    )


def may_exist(record: MachineRecord, now: datetime) -> bool:
    """Tell whether a machine that AWS doesn't list may be there all the same."""
    if record.unclear_since is not None:
        return now - record.unclear_since <= UNCLEAR_FOR
    return now - record.asked_at <= SETTLES_IN


def _address(instance: InstanceTypeDef, record: MachineRecord | None, key_file: Path) -> SshAddress | None:
    host = _host(instance, record)
    if record is None or not host:
        return None
    return SshAddress(
        host=host,
        port=_SSH,
        user=CLOUD_USER,
        admin=CLOUD_ADMIN,
        host_key=record.host_key,
        key_file=str(key_file),
        provisional=not record.pinned,
        jump_host=record.jump_host,
        proxy_command=record.proxy_command,
    )


def _host(instance: InstanceTypeDef, record: MachineRecord | None) -> str:
    is_private = record is not None and record.private
    return instance.get("PrivateIpAddress", "") if is_private else instance.get("PublicIpAddress", "")


def _lifetime(tags: dict[str, str]) -> timedelta:
    """Both tags were written before the launch; only what lies between them is the machine's."""
    try:
        return datetime.fromisoformat(tags[DEADLINE]) - datetime.fromisoformat(tags[CREATED])
    except (KeyError, ValueError, TypeError):
        return DEFAULT_DEADLINE


def _price(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:
        return Decimal(0)
