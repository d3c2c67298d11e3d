"""`AwsVolumes`: the `VolumeApi` of EC2.

A volume is found by its tag `kedge-volume`. Volumes that kedge created also have the tag `kedge-created`: a machine may
format only those, only if they are blank, and never if they were filled from a snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from orchestrator.adapters.aws_sdk import code_of, translate
from orchestrator.adapters.cloud.boot.cloud_config import Origin
from orchestrator.adapters.cloud.idempotency import token_of
from orchestrator.adapters.cloud.volumes.model import DataVolume, ListedVolume, UnknownVolumeError, VolumeTraits
from orchestrator.adapters.providers.aws.access.closed import is_closed
from orchestrator.adapters.providers.aws.access.zones import as_request
from orchestrator.adapters.providers.aws.refusals import is_for_another_offer, refused_launch
from orchestrator.adapters.providers.aws.tags import (
    AT_END,
    CREATED,
    RUN,
    VOLUME,
    read_tags,
    tag_list,
    tag_specifications,
    user_tags,
)
from orchestrator.adapters.providers.aws.traits import APPEARS_IN
from orchestrator.adapters.providers.aws.volumes.listed import parse_volume, serial_of, translated
from orchestrator.adapters.providers.aws.volumes.restoring import as_request as from_snapshot

if TYPE_CHECKING:
    from datetime import datetime

    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_ec2.type_defs import FilterTypeDef, InstanceTypeDef

    from orchestrator.adapters.providers.aws.access.session import AwsSession
    from orchestrator.core.errors import KedgeError
    from orchestrator.core.job import AtEnd, Resources, VolumeSpec
    from orchestrator.core.machine import MachineOrder

_ENDING = ("shutting-down", "stopping", "terminated")
_FIRST_DEVICE = ord("f")
_EXISTS: FilterTypeDef = {"Name": "status", "Values": ["creating", "available", "in-use", "error"]}
"""EC2 goes on listing a deleted volume for some minutes."""
"""/dev/sdf to /dev/sdp are EC2's names for data volumes (EC2 user guide, "Device names on Linux instances")."""


class AwsVolumes:
    """The data volumes of one account.

    Args:
        session: the account's session.
        note: called with a run and a region, before the run uses volumes there.
    """

    traits = VolumeTraits(speaker="AWS", place_word="zone", attaches_at_birth=False, appears_in=APPEARS_IN)

    def __init__(self, session: AwsSession, note: Callable[[str, str], None] = lambda _run, _region: None) -> None:
        self._session = session
        self._note = note

    def place_of(self, order: MachineOrder) -> str:
        """Return the zone."""
        return order.zone

    def regions_of(self, resources: Resources) -> Sequence[str]:
        """Return the job's regions, else the session's own."""
        return resources.regions or (self._session.region,)

    def is_closed(self, err: KedgeError) -> bool:
        """Tell whether the region is closed to the account."""
        return is_closed(err)

    def device_of(self, number: int) -> str:
        """Return the path on older machine types (Xen), such as p3."""
        return _device(number).replace("/sd", "/xvd")

    def name_tag(self, name: str) -> str:
        """Return the tag with its value."""
        return f"{VOLUME}={name}"

    def note_use(self, run_id: str, region: str) -> None:
        """Write the region into the run's record: the teardown looks for volumes there."""
        self._note(run_id, region)

    def list_named(self, names: Sequence[str], region: str) -> Sequence[ListedVolume]:
        """List by the tag of the name."""
        usable: FilterTypeDef = {"Name": "status", "Values": ["creating", "available", "in-use"]}
        return self._list(region, "data volumes can't be listed", _tagged(VOLUME, *names), usable)

    def list_of_run(self, run_id: str, region: str) -> Sequence[ListedVolume]:
        """List by the tag of the run."""
        return self._list(
            region, f"the data volumes of run {run_id} can't be listed", _tagged(RUN, run_id), _has_name(), _EXISTS
        )

    def list_all(self, region: str) -> Sequence[ListedVolume]:
        """List the volumes with a run's tag: those that only have a name are the user's own."""
        listed = self._list(region, f"data volumes in {region} can't be listed", _has_name(), _EXISTS)
        return [volume for volume in listed if RUN in volume.tags]

    def read(self, volume: ListedVolume) -> ListedVolume:
        """Look it up by its id."""
        with translated(f"the data volume {volume.name} can't be read"):
            found = self._ec2(volume.region).describe_volumes(VolumeIds=[volume.id])["Volumes"][0]
        return parse_volume(found, volume.region)

    def create(self, spec: VolumeSpec, order: MachineOrder, now: datetime) -> ListedVolume:
        """Create it, encrypted, exactly once: the SDK's own retries carry the same token."""
        disk = spec.disk
        tags = {
            **dict(order.site.tags),
            **_use_tags(order.run_id, spec.at_end),
            VOLUME: spec.name,
            CREATED: now.isoformat(),
            "Name": spec.name,
        }
        try:
            made = self._ec2(order.region).create_volume(
                **as_request(order.zone),
                Size=spec.size_gib,
                VolumeType="gp3",
                Iops=disk.iops,
                Throughput=disk.mibps,
                Encrypted=True,
                **from_snapshot(spec),
                # A volume that was created for an earlier order may have been deleted since.
                ClientToken=token_of(order.id, order.zone, spec.name, tags[CREATED]),
                TagSpecifications=tag_specifications(tags, "volume"),
            )
        except (ClientError, BotoCoreError) as err:
            what = f"the data volume {spec.name} can't be made"
            if is_for_another_offer(err):
                raise refused_launch(err, order, what) from err
            raise translate(err, what) from err
        return ListedVolume(
            id=made["VolumeId"],
            name=spec.name,
            region=order.region,
            place=order.zone,
            origin=Origin.RESTORED if spec.snapshot_id else Origin.MADE,
            serial=serial_of(made["VolumeId"]),
            is_free=False,
            run_id=order.run_id,
            at_end=spec.at_end,
            tags=tags,
        )

    def takes_volumes(self, instance_id: str, region: str) -> bool:
        """Tell whether an instance is no longer pending; one that AWS doesn't know yet counts as pending."""
        try:
            return self._instance(instance_id, region)["State"]["Name"] != "pending"
        except (ClientError, BotoCoreError) as err:
            if isinstance(err, ClientError) and code_of(err) == "InvalidInstanceID.NotFound":
                return False
            raise translate(err, f"the data volumes can't be attached to {instance_id}") from err

    def attach(self, volume: DataVolume, instance_id: str) -> None:
        """Attach it under the device name of its number."""
        with translated(f"the data volumes can't be attached to {instance_id}"):
            self._ec2(volume.listed.region).attach_volume(
                VolumeId=volume.id, InstanceId=instance_id, Device=_device(volume.number)
            )

    def is_ending_machine_of(self, instance_id: str, region: str, run_id: str) -> bool:
        """Tell by the instance's state and its tag."""
        with translated(f"the instance {instance_id} can't be read"):
            found = self._instance(instance_id, region)
        return found["State"]["Name"] in _ENDING and read_tags(found.get("Tags")).get(RUN) == run_id

    def mark_used(self, volume: ListedVolume, run_id: str, at_end: AtEnd) -> None:
        """Write both tags at once."""
        with translated(f"the data volume {volume.name} can't be tagged"):
            self._ec2(volume.region).create_tags(Resources=[volume.id], Tags=tag_list(_use_tags(run_id, at_end)))

    def delete(self, volume: ListedVolume) -> bool:
        """Delete it by its id."""
        try:
            with translated(f"the data volume {volume.name} can't be deleted"):
                self._ec2(volume.region).delete_volume(VolumeId=volume.id)
        except UnknownVolumeError:
            return False
        return True

    def find_snapshot(self, volume: ListedVolume, run_id: str) -> str:
        """Find a snapshot by the run's tag, without failed ones."""
        of_volume: FilterTypeDef = {"Name": "volume-id", "Values": [volume.id]}
        with translated(_not_copied(volume)):
            found = self._ec2(volume.region).describe_snapshots(
                OwnerIds=["self"], Filters=[of_volume, _tagged(RUN, run_id)]
            )["Snapshots"]
        return next((each["SnapshotId"] for each in found if each["State"] != "error"), "")

    def begin_snapshot(self, volume: ListedVolume, run_id: str) -> str:
        """Start a snapshot, with the user's own tags too."""
        tags = {**user_tags(volume.tags), RUN: run_id, VOLUME: volume.name, "Name": volume.name}
        with translated(_not_copied(volume)):
            return self._ec2(volume.region).create_snapshot(
                VolumeId=volume.id,
                Description=f"kedge: {volume.name} at the end of run {run_id}",
                TagSpecifications=tag_specifications(tags, "snapshot"),
            )["SnapshotId"]

    def is_copied(self, snapshot_id: str, region: str) -> bool:
        """Tell whether it is completed."""
        with translated(f"the snapshot {snapshot_id} can't be read"):
            found = self._ec2(region).describe_snapshots(SnapshotIds=[snapshot_id])["Snapshots"][0]
        return found["State"] == "completed"

    def _ec2(self, region: str) -> EC2Client:
        return self._session.client("ec2", region)

    def _list(self, region: str, what: str, *filters: FilterTypeDef) -> list[ListedVolume]:
        with translated(what):
            pages = self._ec2(region).get_paginator("describe_volumes").paginate(Filters=list(filters))
            return [parse_volume(volume, region) for page in pages for volume in page["Volumes"]]

    def _instance(self, instance_id: str, region: str) -> InstanceTypeDef:
        found = self._ec2(region).describe_instances(InstanceIds=[instance_id])
        return found["Reservations"][0]["Instances"][0]


def _device(number: int) -> str:
    return f"/dev/sd{chr(_FIRST_DEVICE + number)}"


def _use_tags(run_id: str, at_end: AtEnd) -> Mapping[str, str]:
    return {RUN: run_id, AT_END: at_end.value}


def _tagged(key: str, *values: str) -> FilterTypeDef:
    return {"Name": f"tag:{key}", "Values": list(values)}


def _has_name() -> FilterTypeDef:
    return {"Name": "tag-key", "Values": [VOLUME]}


def _not_copied(volume: ListedVolume) -> str:
    return f"the data volume {volume.name} can't be copied"
