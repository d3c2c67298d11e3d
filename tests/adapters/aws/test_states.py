"""EC2's machines take their time to begin and to end: kedge waits for both, by the clock."""

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
    """An account whose instances take an hour to begin and to end, and a laptop whose clock is the computer's."""
    aws.api.set_states(pending_seconds=HOUR, ending_seconds=HOUR)
    return replace(aws, clock=SystemClock())


def states(aws: AwsWorld) -> list[str]:
    """Return the states of all instances, of those that have ended too."""
    listed = aws.api.client("ec2").describe_instances()["Reservations"]
    return [instance["State"]["Name"] for reservation in listed for instance in reservation["Instances"]]


def seen(aws: AwsWorld, machine_id: str = M1) -> MachineState | None:
    """Return what the next command sees of a machine; None when it is gone."""
    machine = aws.provider().describe(machine_id)
    return machine.state if machine else None


def test_a_pending_instance_is_a_machine_that_boots(slow: AwsWorld) -> None:
    """It is ready when EC2 says that it runs, and not before."""
    slow.provider().create(slow.order())
    assert (states(slow), seen(slow)) == (["pending"], MachineState.BOOTING)
    slow.api.finish_states()
    assert (states(slow), seen(slow)) == (["running"], MachineState.READY)


def test_a_machine_is_gone_only_when_it_is_terminated(slow: AwsWorld) -> None:
    """While it shuts down it is neither gone nor free to be released."""
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


def test_a_volume_waits_for_its_machine_and_for_the_one_before(slow: AwsWorld) -> None:
    """It is attached when the new one runs, once the old one has let it go."""
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


def test_a_machine_that_ends_is_known_as_its_own_run_s(slow: AwsWorld) -> None:
    """A volume that it still has is worth waiting for, by that run alone."""
    machine = slow.provider().create(slow.order())
    volumes = AwsVolumes(AwsSession())
    assert not volumes.is_ending_machine_of(machine.provider_id, REGION, RUN)
    slow.provider().destroy(M1)
    assert volumes.is_ending_machine_of(machine.provider_id, REGION, RUN)
    assert not volumes.is_ending_machine_of(machine.provider_id, REGION, "other-1")
