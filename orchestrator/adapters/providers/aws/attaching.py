"""Data volumes and machines: who has a volume, giving it to a machine, and noting which run used it last.

The tags that say so, `kedge-run` and `kedge-at-end`, decide what becomes of a volume at its run's end. A volume that
was there before gets a run's tags only once a machine of that run has it: no other run may settle its end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from orchestrator.adapters.aws_sdk import code_of, translate
from orchestrator.adapters.boot import BootVolume, Origin
from orchestrator.adapters.patience import ask_again, wait_until
from orchestrator.adapters.providers.aws.consistency import APPEARS_IN
from orchestrator.adapters.providers.aws.tags import AT_END, RUN, read_tags, tag_list
from orchestrator.core.errors import ConflictError, KedgeError

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_ec2.type_defs import InstanceTypeDef, VolumeTypeDef

    from orchestrator.core.job import VolumeSpec
    from orchestrator.core.ports import Clock

_DETACHES_IN = timedelta(minutes=3)
"""A volume leaves its machine when that has shut down."""
_OWN_DETACHES_IN = timedelta(minutes=15)
"""Machines with many GPUs take this long to shut down; one of the same run is worth waiting for."""
_RUNS_IN = timedelta(minutes=5)
_ENDING = ("shutting-down", "stopping", "terminated")
_FIRST_DEVICE = ord("f")
"""/dev/sdf to /dev/sdp are EC2's names for data volumes (EC2 user guide, "Device names on Linux instances")."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataVolume:
    """A volume and what the run wants of it.

    Attributes:
        number: among the machine's data volumes, from 0.
        is_new: it was made for this very order.
        run_id: the run that its tags name.
        holder: the instance that has it; empty for none.
    """

    id: str
    spec: VolumeSpec
    origin: Origin
    number: int
    is_new: bool = False
    run_id: str = ""
    holder: str = ""

    @property
    def device(self) -> str:
        """What it is called when it is attached."""
        return f"/dev/sd{chr(_FIRST_DEVICE + self.number)}"

    @property
    def boot(self) -> BootVolume:
        """What the machine must know of it."""
        return BootVolume(
            serial=self.id.replace("-", ""),
            target=self.spec.target,
            origin=self.origin,
            # Machines of older types (Xen), such as p3, show it under this name.
            device=self.device.replace("/sd", "/xvd"),
        )


def use_tags(run_id: str, spec: VolumeSpec) -> Mapping[str, str]:
    """Return the tags of a volume that a run uses."""
    return {RUN: run_id, AT_END: spec.at_end.value}


def is_unknown_volume(err: BaseException) -> bool:
    """Tell whether EC2 says that there is no such volume."""
    return isinstance(err, ClientError) and code_of(err) == "InvalidVolume.NotFound"


def await_free(ec2: EC2Client, volume: DataVolume, run_id: str, clock: Clock) -> None:
    """Wait until nobody has the volume: the machine before, of the same run, may still be shutting down.

    Raises:
        ConflictError: somebody has it still.
        KedgeError: AWS doesn't tell.
    """
    look = ask_again(clock, APPEARS_IN if volume.is_new else timedelta(0), is_unknown_volume)

    def is_free() -> bool:
        return look(_volume, ec2, volume.id)["State"] == "available"

    try:
        if wait_until(clock, _DETACHES_IN, is_free):
            return
        is_own = _is_ending_machine_of(ec2, volume.id, run_id)
        if is_own and wait_until(clock, _OWN_DETACHES_IN - _DETACHES_IN, is_free):
            return
    except (ClientError, BotoCoreError) as err:
        raise translate(err, f"the data volume {volume.spec.name} can't be looked at") from err
    raise _in_use(volume, is_own=is_own)


def attach_volumes(ec2: EC2Client, instance_id: str, run_id: str, volumes: Sequence[DataVolume], clock: Clock) -> None:
    """Give volumes to a machine once it runs, and to its run; what it has already is left as it is.

    Raises:
        ConflictError: another machine has one.
        KedgeError: the machine doesn't run in time, or AWS doesn't attach them.
    """
    if not volumes:
        return
    try:
        if not wait_until(clock, _RUNS_IN, lambda: _state(ec2, instance_id) != "pending"):
            raise KedgeError(f"{instance_id} doesn't run", why=f"it was given {_RUNS_IN.total_seconds():.0f} seconds")
        for volume in volumes:
            _give(ec2, instance_id, run_id, volume, clock)
    except (ClientError, BotoCoreError) as err:
        raise translate(err, f"the data volumes can't be attached to {instance_id}") from err


def _give(ec2: EC2Client, instance_id: str, run_id: str, volume: DataVolume, clock: Clock) -> None:
    if volume.holder not in ("", instance_id):
        raise _in_use(volume, is_own=False)
    again = ask_again(clock, APPEARS_IN if volume.is_new else timedelta(0), is_unknown_volume)
    if not volume.holder:
        again(ec2.attach_volume, VolumeId=volume.id, InstanceId=instance_id, Device=volume.device)
    if not volume.is_new and not (volume.holder and volume.run_id == run_id):
        ec2.create_tags(Resources=[volume.id], Tags=tag_list(use_tags(run_id, volume.spec)))


def _in_use(volume: DataVolume, *, is_own: bool) -> ConflictError:
    what = f"the data volume {volume.spec.name} is in use"
    if is_own:
        minutes = _OWN_DETACHES_IN.total_seconds() / 60
        return ConflictError(
            what,
            why=f"the run's machine before still has {volume.id}: it has been shutting down for {minutes:.0f} minutes",
            fix="give the command again in a few minutes; AWS ends the machine",
        )
    return ConflictError(
        what,
        why=f"{volume.id} is attached to another machine",
        fix="wait for the run that has it, or tear that run down",
    )


def _is_ending_machine_of(ec2: EC2Client, volume_id: str, run_id: str) -> bool:
    """Tell whether it is a machine of this very run that has the volume, on its way out."""
    holders = [attachment["InstanceId"] for attachment in _volume(ec2, volume_id).get("Attachments", [])]
    found = [_instance(ec2, holder) for holder in holders]
    return bool(found) and all(
        each["State"]["Name"] in _ENDING and read_tags(each.get("Tags")).get(RUN) == run_id for each in found
    )


def _volume(ec2: EC2Client, volume_id: str) -> VolumeTypeDef:
    return ec2.describe_volumes(VolumeIds=[volume_id])["Volumes"][0]


def _instance(ec2: EC2Client, instance_id: str) -> InstanceTypeDef:
    return ec2.describe_instances(InstanceIds=[instance_id])["Reservations"][0]["Instances"][0]


def _state(ec2: EC2Client, instance_id: str) -> str:
    """Return an instance's state; one that AWS doesn't list yet is pending."""
    try:
        return str(_instance(ec2, instance_id)["State"]["Name"])
    except ClientError as err:
        if code_of(err) == "InvalidInstanceID.NotFound":
            return "pending"
        raise
