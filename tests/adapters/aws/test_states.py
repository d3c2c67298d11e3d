"""EC2 instances take time to start and to end; kedge waits for both."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from orchestrator.adapters.host.clock import SystemClock
from orchestrator.adapters.providers.aws.access.session import AwsSession
from orchestrator.adapters.providers.aws.volumes.volume_api import AwsVolumes
from orchestrator.core.errors import StillBillingError
from orchestrator.core.job import VolumeSpec
from orchestrator.core.machine import MachineState
from tests.adapters.aws.world import RUN, AwsWorld
from tests.cloudbox.aws.box import REGION

M1 = f"{RUN}-m1"
HOUR = 3600
SCANS = VolumeSpec(name="scans", target="data/scans", size_gib=1)


@pytest.fixture
def slow(aws: AwsWorld) -> AwsWorld:
    """An account whose instances take an hour to start and to end, and a laptop with the computer's clock."""
    aws.api.set_states(pending_seconds=HOUR, ending_seconds=HOUR)
    return replace(aws, clock=SystemClock())


def states(aws: AwsWorld) -> list[str]:
    """Return the states of all instances, including terminated ones."""
    listed = aws.api.client("ec2").describe_instances()["Reservations"]
    return [instance["State"]["Name"] for reservation in listed for instance in reservation["Instances"]]


def seen(aws: AwsWorld, machine_id: str = M1) -> MachineState | None:
    """Return the state in which the next command sees a machine; None if it is gone."""
    machine = aws.provider().describe(machine_id)
    return machine.state if machine else None


def test_a_pending_instance_is_a_booting_machine(slow: AwsWorld) -> None:
    """It is ready when EC2 reports it as running, and not before."""
    slow.provider().create(slow.order())
    assert (states(slow), seen(slow)) == (["pending"], MachineState.BOOTING)
    slow.api.finish_states()
    assert (states(slow), seen(slow)) == (["running"], MachineState.READY)


def test_a_machine_is_gone_only_when_it_is_terminated(slow: AwsWorld) -> None:
    """While it shuts down it is not gone, and its run cannot be released."""
    slow.provider().create(slow.order())
    slow.provider().destroy(M1)
    assert (states(slow), seen(slow)) == (["shutting-down"], MachineState.ENDING)
    with pytest.raises(StillBillingError, match=RUN):
        slow.provider().release(RUN)
    slow.provider().destroy(M1)
    assert seen(slow) is MachineState.ENDING
    slow.api.finish_states()
    assert (states(slow), seen(slow)) == (["terminated"], None)
    slow.provider().release(RUN)
    assert slow.api.billing() == []


def test_a_volume_waits_for_its_machine_and_for_the_previous_one(slow: AwsWorld) -> None:
    """It is attached once the new machine runs and the old one has detached it."""
    slow.api.set_states(pending_seconds=1, ending_seconds=1)
    began = slow.clock.now()
    slow.provider().create(slow.order(1, volumes=(SCANS,)))
    slow.provider().destroy(M1)
    slow.provider().create(slow.order(2, volumes=(SCANS,)))
    assert states(slow) == ["terminated", "running"]
    assert slow.clock.now() - began >= timedelta(seconds=3)
    (volume,) = slow.api.client("ec2").describe_volumes(Filters=[{"Name": "tag:kedge-volume", "Values": ["scans"]}])[
        "Volumes"
    ]
    (instance,) = slow.instances()
    assert [each["InstanceId"] for each in volume["Attachments"]] == [instance["InstanceId"]]


def test_an_ending_machine_is_known_to_belong_to_its_run(slow: AwsWorld) -> None:
    """Only its own run waits for a volume that it still has."""
    machine = slow.provider().create(slow.order())
    volumes = AwsVolumes(AwsSession())
    assert not volumes.is_ending_machine_of(machine.provider_id, REGION, RUN)
    slow.provider().destroy(M1)
    assert volumes.is_ending_machine_of(machine.provider_id, REGION, RUN)
    assert not volumes.is_ending_machine_of(machine.provider_id, REGION, "other-1")
