"""Which machines a laptop finds, and in which regions."""

from __future__ import annotations

from datetime import timedelta

import pytest

from orchestrator.core.errors import KedgeError
from orchestrator.core.machine import MachineState
from tests.adapters.aws.world import RUN, AwsWorld

M1 = f"{RUN}-m1"
FAR = "eu-west-1"


def test_the_next_command_finds_the_machine_as_it_was_created(aws: AwsWorld) -> None:
    """It is reached as the job's user or as kedge's own. Its first host key is provisional."""
    made = aws.provider().create(aws.order())
    found = aws.provider().describe(M1)
    assert found is not None
    assert found.state is MachineState.READY
    assert found.address is not None
    address = found.address
    assert (address.user, address.admin, address.port, address.provisional) == ("job", "kedge", 22, True)
    assert found.address.host_key.startswith("ecdsa-sha2-nistp256 ")
    assert made.created_at == found.created_at
    assert found.deadline_at - found.created_at == timedelta(hours=1)
    assert list(aws.provider().machines()) == [found]


def test_two_instances_with_one_id_are_both_listed_and_both_ended(aws: AwsWorld) -> None:
    """This should never happen. If it does, neither is overlooked."""
    aws.provider().create(aws.order())
    client = aws.api.client("ec2")
    image = aws.instances()[0]["ImageId"]
    tags = [{"Key": "kedge-machine", "Value": M1}, {"Key": "kedge-run", "Value": RUN}]
    client.run_instances(
        ImageId=image,
        MinCount=1,
        MaxCount=1,
        InstanceType="m5.large",
        TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
    )
    assert [machine.id for machine in aws.provider().machines()] == [M1, M1]
    aws.provider().destroy(M1)
    assert aws.instances() == []


def test_a_machine_of_another_laptop_is_found_in_a_region_that_the_user_names(aws: AwsWorld) -> None:
    """It can be ended but not reached: only the laptop that created it knows its host key."""
    aws.provider().create(aws.order(region=FAR, zone=f"{FAR}a"))
    other = AwsWorld(api=aws.api, folder=aws.folder / "other", environ={"KEDGE_AWS_REGIONS": f"us-west-2, {FAR}"})
    (found,) = other.provider().machines()
    assert (found.id, found.run_id, found.address) == (M1, RUN, None)
    assert found.deadline_at - found.created_at == timedelta(hours=1)
    other.provider().destroy(M1)
    assert aws.instances(FAR) == []


def test_machines_of_other_regions_are_remembered(aws: AwsWorld) -> None:
    """A laptop looks for a machine in the region where it created it."""
    aws.provider().create(aws.order(region=FAR, zone=f"{FAR}a"))
    assert [machine.id for machine in aws.provider().machines()] == [M1]


def test_a_region_that_does_not_answer_is_an_error(aws: AwsWorld) -> None:
    """Otherwise a machine that bills there would be hidden."""
    aws.provider().create(aws.order(region=FAR, zone=f"{FAR}a"))
    aws.api.fail_next("DescribeInstances", "UnauthorizedOperation", times=None, region=FAR)
    with pytest.raises(KedgeError, match=FAR):
        aws.provider().machines()


def test_a_stopped_machine_is_not_gone(aws: AwsWorld) -> None:
    """Its disks still bill. It counts as ending until it is terminated."""
    machine = aws.provider().create(aws.order())
    aws.api.client("ec2").stop_instances(InstanceIds=[machine.provider_id])
    found = aws.provider().describe(M1)
    assert found is not None
    assert found.state is MachineState.ENDING
