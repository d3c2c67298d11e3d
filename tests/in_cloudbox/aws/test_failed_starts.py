"""`kedge launch` if AWS accepts a machine and can't start it: the next offer is rented, and nothing is left."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from tests.adapters.aws.world import set_up
from tests.cloudbox.aws.box import REGION, Box
from tests.cloudbox.aws.leftovers import leftovers
from tests.support.laptop import Laptop
from tests.support.waiting import wait_until

ZONES = (f"{REGION}a", f"{REGION}b")
JOB = """
    name: toy
    start: boot
    run: sleep 60
    deadline: 10m
    budget: 5
    resources: {{instance_type: m5.large, region: us-east-1}}
    provider: {{aws: {{subnet: [{subnets}]}}}}
"""
VOLUME = "    volumes: {data/scratch: {name: scratch, size: 1, at_end: delete}}\n"


def make_subnets(api: Box) -> list[str]:
    """Make a network with two zones, so that there are two offers."""
    ec2 = api.client("ec2")
    vpc = ec2.create_vpc(CidrBlock="10.7.0.0/16")["Vpc"]["VpcId"]
    return [
        ec2.create_subnet(VpcId=vpc, CidrBlock=f"10.7.{number}.0/24", AvailabilityZone=zone)["Subnet"]["SubnetId"]
        for number, zone in enumerate(ZONES)
    ]


def instances(api: Box) -> list[dict[str, Any]]:
    """List all instances, ended ones included, in the order of their launches."""
    found = api.client("ec2").describe_instances()["Reservations"]
    return sorted((each for one in found for each in one["Instances"]), key=lambda each: each["LaunchTime"])


@pytest.mark.parametrize(
    ("code", "volumes"),
    [("Client.InternalError", ""), ("Client.VolumeLimitExceeded", VOLUME)],
    ids=["while it boots", "while its volumes are attached"],
)
def test_a_launch_uses_the_next_offer_if_aws_can_not_start_a_machine(
    api: Box, laptop: Laptop, code: str, volumes: str
) -> None:
    """Each zone is tried once, one machine at a time; if none starts, nothing bills, and a teardown leaves nothing.

    The instance goes from pending to shutting-down and to terminated, and never runs. fact: aws-failed-starts
    """
    set_up(api)
    laptop.extra_env |= {**api.env, "KEDGE_PROVIDER": "aws", "KEDGE_SSH_FROM": "127.0.0.1/32"}
    laptop.write_job(JOB.format(subnets=", ".join(make_subnets(api))) + volumes)
    api.set_states(pending_seconds=0.3, ending_seconds=0.3)
    for _ in ZONES:
        api.fail_start(code, "in AWS's words")
    said = laptop.kedge("launch", "--yes", code=3)
    for zone in ZONES:
        assert f"{zone} m5.large" in said
    # AWS ends what it couldn't start, in its own time: nobody waits for the last one.
    wait_until(lambda: {each["State"]["Name"] for each in instances(api)} == {"terminated"})
    assert [each["Placement"]["AvailabilityZone"] for each in instances(api)] == list(ZONES)
    first, second = [bill for bill in api.meter().bills if bill.kind == "instance"]
    assert first.until is not None
    assert first.until <= second.since
    assert api.billing() == []
    (run,) = laptop.json("status", "--all")
    assert Decimal(run["spent_usd"]) < Decimal("0.01")
    laptop.kedge("teardown", run["run"], "--yes")
    assert leftovers(api) == []
    assert laptop.json("status", run["run"])[0]["spent_usd"] == run["spent_usd"]
