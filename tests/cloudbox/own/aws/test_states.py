"""The box's instances pass through the states that EC2's do."""

from __future__ import annotations

from typing import Any

from tests.cloudbox.aws.box import REGION, Box
from tests.cloudbox.aws.launches import code_of, instances, launch, refusal
from tests.support.waiting import wait_until


def state(box: Box) -> str:
    """Return the state of the only instance."""
    return str(instances(box)[0]["State"]["Name"])


def make_volume(box: Box) -> dict[str, Any]:
    """Make a data volume, and return how it is attached to the only instance."""
    made = box.client("ec2").create_volume(AvailabilityZone=f"{REGION}a", Size=1, VolumeType="gp3")
    return {"VolumeId": made["VolumeId"], "InstanceId": instances(box)[0]["InstanceId"], "Device": "/dev/sdf"}


def test_an_instance_is_pending_before_it_runs(api: Box) -> None:
    """It bills, and takes no volume."""
    api.set_states(pending_seconds=3600, ending_seconds=0)
    launch(api, Placement={"AvailabilityZone": f"{REGION}a"})
    assert state(api) == "pending"
    attachment = make_volume(api)
    assert code_of(refusal(api.client("ec2").attach_volume, **attachment)) == "IncorrectState"
    assert "instance" in {bill.kind for bill in api.billing()}
    api.finish_states()
    assert state(api) == "running"
    api.client("ec2").attach_volume(**attachment)


def test_an_instance_that_shuts_down_keeps_its_volumes_until_it_is_terminated(api: Box) -> None:
    """It no longer bills, its data volume is in use and its root disk is there; both go with it. The reason stays."""
    instance = launch(api, Placement={"AvailabilityZone": f"{REGION}a"})
    ec2, attachment = api.client("ec2"), make_volume(api)
    ec2.attach_volume(**attachment)
    api.set_states(pending_seconds=0, ending_seconds=3600)
    ec2.terminate_instances(InstanceIds=[instance])
    ec2.terminate_instances(InstanceIds=[instance])
    assert state(api) == "shutting-down"
    assert {bill.kind for bill in api.billing()} == {"volume"}
    assert len(api.billing()) == 2
    reason = instances(api)[0]["StateReason"]
    assert reason["Code"] == "Client.UserInitiatedShutdown"
    api.finish_states()
    assert state(api) == "terminated"
    assert instances(api)[0]["StateReason"] == reason
    assert [bill.id for bill in api.billing()] == [attachment["VolumeId"]]
    assert ec2.describe_volumes(VolumeIds=[attachment["VolumeId"]])["Volumes"][0]["State"] == "available"


def test_what_was_going_to_happen_is_forgotten_with_a_reset(api: Box) -> None:
    """Neither the durations nor the instances of the test before."""
    api.set_states(pending_seconds=3600, ending_seconds=3600)
    api.client("ec2").terminate_instances(InstanceIds=[launch(api)])
    api.reset()
    api.finish_states()
    launch(api)
    assert state(api) == "running"


def test_the_states_end_by_themselves(api: Box) -> None:
    """After as long as was said."""
    api.set_states(pending_seconds=0.05, ending_seconds=0.05)
    instance = launch(api)
    wait_until(lambda: state(api) == "running")
    api.client("ec2").terminate_instances(InstanceIds=[instance])
    wait_until(lambda: state(api) == "terminated")
