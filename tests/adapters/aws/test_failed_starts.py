"""AWS accepts a launch and ends the machine while it starts: the launch failed, and the next offer is tried."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from orchestrator.adapters.ledger.sqlite import SqliteLedger
from orchestrator.core.errors import NoCapacityError, UnfitMachineError
from orchestrator.core.job import AtEnd, VolumeSpec
from orchestrator.core.machine import EndedBy, MachineState
from orchestrator.engine.steps.boot import await_boot
from tests.adapters.aws.world import RUN, AwsWorld
from tests.cloudbox.aws.box import REGION
from tests.cloudbox.aws.leftovers import leftovers
from tests.support.fakes import make_world

M1 = f"{RUN}-m1"
SCRATCH = VolumeSpec(name="scratch", target="data/scratch", size_gib=20, at_end=AtEnd.DELETE)


@pytest.fixture
def ledger(aws: AwsWorld) -> Iterator[SqliteLedger]:
    made = SqliteLedger(aws.folder / "ledger.db", aws.clock)
    yield made
    made.close()


@pytest.mark.parametrize("code", ["Client.InternalError", "Client.VolumeLimitExceeded", "Server.InternalError"])
def test_a_machine_that_aws_ends_at_its_start_is_a_failed_launch(
    aws: AwsWorld, ledger: SqliteLedger, code: str
) -> None:
    """The error gives AWS's reason, and its class makes the engine try another offer.

    fact: aws-failed-starts
    """
    aws.api.set_states(pending_seconds=0.2, ending_seconds=0.2)
    aws.api.fail_start(code, "in AWS's words")
    provider = aws.provider()
    assert provider.create(aws.order()).state is MachineState.BOOTING
    world = replace(make_world(ledger, provider), clock=aws.clock)  # type: ignore[arg-type]
    with pytest.raises(UnfitMachineError, match=f"{M1} could not be started") as caught:
        await_boot(world, RUN, M1)
    assert caught.value.why == f"{code}: in AWS's words"
    end = provider.why_ended(M1)
    assert end is not None
    assert end.by is EndedBy.START
    aws.api.finish_states()
    assert aws.provider().describe(M1) is None
    provider.destroy(M1)
    provider.release(RUN)
    assert leftovers(aws.api) == []


def test_volumes_of_a_machine_that_never_ran_are_deleted(aws: AwsWorld) -> None:
    """Volumes wait for a running machine. A failed start counts as a refusal of the offer; the next can be taken."""
    aws.api.fail_start("Client.VolumeLimitExceeded")
    provider = aws.provider()
    with pytest.raises(NoCapacityError, match="could not be started"):
        provider.create(aws.order(volumes=(SCRATCH,)))
    assert aws.api.client("ec2").describe_volumes()["Volumes"] == []
    machine = provider.create(aws.order(zone=f"{REGION}b", volumes=(SCRATCH,)))
    assert [each["InstanceId"] for each in aws.instances()] == [machine.provider_id]
    (volume,) = aws.api.client("ec2").describe_volumes(Filters=[{"Name": "tag-key", "Values": ["kedge-volume"]}])[
        "Volumes"
    ]
    assert volume["AvailabilityZone"] == f"{REGION}b"
    assert len(aws.schedules()) == 1


@pytest.mark.parametrize(
    "place",
    [{}, {"zone": f"{REGION}b"}, {"region": "us-west-2", "zone": "us-west-2a"}],
    ids=["same", "zone", "region"],
)
def test_an_instance_that_is_still_ending_is_not_taken_for_the_next_offer_s_machine(
    aws: AwsWorld, place: dict[str, Any]
) -> None:
    """It shuts down for minutes under the machine id that the next offer also has. The next one is still requested.

    fact: aws-failed-starts; fact: aws-slow-ends
    """
    aws.api.set_states(pending_seconds=0, ending_seconds=3600)
    aws.api.fail_start("Server.InternalError")
    provider = aws.provider()
    with pytest.raises(NoCapacityError, match="could not be started"):
        provider.create(aws.order(volumes=(SCRATCH,)))
    (dying,) = aws.instances()
    assert (dying["State"]["Name"], aws.schedules()) == ("shutting-down", [])
    order = aws.order(**place, volumes=(SCRATCH,))
    machine = provider.create(order)
    assert machine.provider_id != dying["InstanceId"]
    described = provider.describe(M1)
    assert described is not None
    assert [each.provider_id for each in (described, *provider.machines())][:2] == [machine.provider_id] * 2
    (alive,) = (each for each in aws.instances(order.region) if each["State"]["Name"] == "running")
    assert alive["InstanceId"] == machine.provider_id
    (guarded,) = aws.api.client("scheduler", order.region).list_schedules()["Schedules"]
    assert guarded["Name"] == M1
    aws.api.finish_states()
    again = aws.provider().create(order)
    assert again.provider_id == machine.provider_id
    aws.api.set_states(pending_seconds=0, ending_seconds=0)
    aws.provider().destroy(M1)
    aws.provider().release(RUN)
    assert leftovers(aws.api) == leftovers(aws.api, order.region) == []
