"""What becomes of a run's data volumes when the run is torn down, as their own tags say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from orchestrator.adapters.aws_sdk import code_of, translate
from orchestrator.adapters.patience import wait_until
from orchestrator.adapters.providers.aws.tags import (
    AT_END,
    CREATED,
    RUN,
    VOLUME,
    read_tags,
    tag_specifications,
    user_tags,
)
from orchestrator.core.job import AtEnd

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client

    from orchestrator.core.ports import Clock

_DETACHES_IN = timedelta(minutes=3)
_COPIED_IN = timedelta(minutes=10)
"""A snapshot of a larger volume goes on by itself, and the next teardown finds it."""


def end_volumes(ec2: EC2Client, run_id: str, clock: Clock) -> Sequence[str]:
    """Keep, delete or snapshot the data volumes that a run used last; return a line for each.

    A volume is deleted only if kedge made it, once nobody has it, and after a snapshot only once that is complete. One
    that another run has taken since is that run's to settle.

    Raises:
        KedgeError: AWS doesn't allow it.
    """
    try:
        pages = ec2.get_paginator("describe_volumes").paginate(
            Filters=[{"Name": f"tag:{RUN}", "Values": [run_id]}, {"Name": "tag-key", "Values": [VOLUME]}]
        )
        listed = [volume for page in pages for volume in page["Volumes"]]
        return [_end(ec2, volume["VolumeId"], read_tags(volume.get("Tags")), clock) for volume in listed]
    except (ClientError, BotoCoreError) as err:
        raise translate(err, f"the data volumes of run {run_id} can't be settled") from err


def _end(ec2: EC2Client, volume_id: str, tags: Mapping[str, str], clock: Clock) -> str:
    name = f"data volume {tags[VOLUME]} ({volume_id})"
    wish = tags.get(AT_END, AtEnd.KEEP)
    if wish not in (AtEnd.DELETE, AtEnd.SNAPSHOT):
        return f"kept {name}; it bills until it is deleted"
    if not wait_until(clock, _DETACHES_IN, lambda: _is_free(ec2, volume_id)):
        return f"kept {name}: a machine still has it; give the command again later"
    copy = ""
    if wish == AtEnd.SNAPSHOT:
        snapshot_id = _snapshot(ec2, volume_id, tags)
        if not wait_until(clock, _COPIED_IN, lambda: _is_copied(ec2, snapshot_id)):
            return f"kept {name}: its snapshot {snapshot_id} isn't complete; give the command again later"
        copy = f"; its snapshot is {snapshot_id}"
    if CREATED not in tags:
        return f"kept {name}, which kedge didn't make{copy}"
    if _run_of(ec2, volume_id) != tags[RUN]:
        return f"kept {name}: another run has used it since{copy}"
    _delete(ec2, volume_id)
    return f"deleted {name}{copy}"


def _is_free(ec2: EC2Client, volume_id: str) -> bool:
    return ec2.describe_volumes(VolumeIds=[volume_id])["Volumes"][0]["State"] == "available"


def _run_of(ec2: EC2Client, volume_id: str) -> str:
    """Read which run used a volume last: waiting has taken minutes."""
    return read_tags(ec2.describe_volumes(VolumeIds=[volume_id])["Volumes"][0].get("Tags")).get(RUN, "")


def _snapshot(ec2: EC2Client, volume_id: str, tags: Mapping[str, str]) -> str:
    """Begin the run's snapshot of a volume, or find the one that an earlier teardown began."""
    found = ec2.describe_snapshots(
        OwnerIds=["self"],
        Filters=[{"Name": "volume-id", "Values": [volume_id]}, {"Name": f"tag:{RUN}", "Values": [tags[RUN]]}],
    )["Snapshots"]
    usable = [snapshot["SnapshotId"] for snapshot in found if snapshot["State"] != "error"]
    if usable:
        return usable[0]
    return ec2.create_snapshot(
        VolumeId=volume_id,
        Description=f"kedge: {tags[VOLUME]} at the end of run {tags[RUN]}",
        TagSpecifications=tag_specifications(
            {**user_tags(tags), RUN: tags[RUN], VOLUME: tags[VOLUME], "Name": tags[VOLUME]}, "snapshot"
        ),
    )["SnapshotId"]


def _is_copied(ec2: EC2Client, snapshot_id: str) -> bool:
    return ec2.describe_snapshots(SnapshotIds=[snapshot_id])["Snapshots"][0]["State"] == "completed"


def _delete(ec2: EC2Client, volume_id: str) -> None:
    try:
        ec2.delete_volume(VolumeId=volume_id)
    except ClientError as err:
        if code_of(err) != "InvalidVolume.NotFound":
            raise
