"""Several machines of a run at AWS: they reach each other, are close to each other, and leave nothing behind."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from orchestrator.adapters.cloud.provider import CloudProvider
from orchestrator.adapters.providers.aws.checks import make_probes
from orchestrator.core.checkup import QUOTA, Verdict
from orchestrator.core.errors import ConflictError, NoCapacityError
from orchestrator.core.job import Resources
from orchestrator.core.machine import Machine, MachineOrder
from orchestrator.core.values.site import Site
from tests.adapters.aws.networks import make_network
from tests.adapters.aws.world import HOME, RUN, TYPE, AwsWorld
from tests.cloudbox.aws.box import REGION
from tests.cloudbox.aws.leftovers import leftovers

NAME = f"kedge-{RUN}-{REGION}a"
EFA, B300 = "c5n.18xlarge", "p6-b300.48xlarge"


def order(aws: AwsWorld, rank: int, **changes: Any) -> MachineOrder:
    """Order one of two machines."""
    return aws.order(rank + 1, rank=rank, num_nodes=2, **changes)


def create_both(aws: AwsWorld, **changes: Any) -> tuple[CloudProvider, list[Machine]]:
    provider = aws.provider()
    return provider, [provider.create(order(aws, rank, **changes)) for rank in (0, 1)]


def end_all(aws: AwsWorld, machines: list[Machine]) -> None:
    """End the machines, and release their run."""
    provider = aws.provider()
    for machine in machines:
        provider.destroy(machine.id)
    provider.release(RUN)


def interface_of(instance: dict[str, Any]) -> dict[str, Any]:
    (interface,) = instance["NetworkInterfaces"]
    return dict(interface)


def may_reach(aws: AwsWorld, source: str, target: str, port: int) -> bool:
    """Tell whether the security groups of two instances let one reach the other at its private address."""
    listed = {each["InstanceId"]: each for each in aws.instances()}
    theirs, own = ({group["GroupId"] for group in interface_of(listed[name])["Groups"]} for name in (source, target))
    address = f"{listed[source]['PrivateIpAddress']}/32"
    rules = [
        rule
        for group in aws.api.client("ec2").describe_security_groups(GroupIds=sorted(own))["SecurityGroups"]
        for rule in group["IpPermissions"]
        if rule["IpProtocol"] == "-1" or rule["FromPort"] <= port <= rule["ToPort"]
    ]
    named = {pair["GroupId"] for rule in rules for pair in rule["UserIdGroupPairs"]}
    ranges = {each["CidrIp"] for rule in rules for each in rule["IpRanges"]}
    assert ranges <= {HOME}
    return bool(theirs & named) or address in ranges


def test_the_machines_of_a_run_reach_each_other_and_nobody_else_does(aws: AwsWorld) -> None:
    """On every port, in and out (fact: aws-efa-group-rules); another machine in the same network reaches none."""
    _, (head, second) = create_both(aws)
    stranger = aws.provider().create(aws.order(1, id="other-1121-ab2c-m1", run_id="other-1121-ab2c"))
    assert may_reach(aws, head.provider_id, second.provider_id, 29500)
    assert may_reach(aws, second.provider_id, head.provider_id, 22)
    for port in (22, 29500):
        assert not may_reach(aws, stranger.provider_id, head.provider_id, port)
        assert not may_reach(aws, head.provider_id, stranger.provider_id, port)
    groups = aws.api.client("ec2").describe_security_groups(Filters=[{"Name": "tag:kedge-run", "Values": [RUN]}])
    (group,) = groups["SecurityGroups"]
    assert [pair["GroupId"] for rule in group["IpPermissionsEgress"] for pair in rule["UserIdGroupPairs"]] == [
        group["GroupId"]
    ]


def test_a_machine_knows_its_rank_and_its_private_address(aws: AwsWorld) -> None:
    """After any restart of kedge, from its record and from EC2."""
    _, made = create_both(aws)
    listed = {each["InstanceId"]: each["PrivateIpAddress"] for each in aws.instances()}
    for machines in (made, aws.provider().machines()):
        ranks = {machine.rank: machine.private_address for machine in machines}
        assert ranks == {machine.rank: listed[machine.provider_id] for machine in made}
    assert sorted(machine.rank for machine in made) == [0, 1]


def test_the_machines_are_in_one_placement_group_which_goes_with_the_run(aws: AwsWorld) -> None:
    """One alone has none."""
    ec2 = aws.api.client("ec2")
    alone = aws.provider().create(aws.order(7))
    assert ec2.describe_placement_groups()["PlacementGroups"] == []
    _, machines = create_both(aws)
    (group,) = ec2.describe_placement_groups()["PlacementGroups"]
    assert (group["GroupName"], group["Strategy"]) == (NAME, "cluster")
    placed = [call for call in aws.api.calls() if call.action == "RunInstances"]
    assert len(placed) == 3
    end_all(aws, [alone, *machines])
    assert leftovers(aws.api) == []


def test_a_type_that_can_not_be_placed_is_launched_without_a_group(aws: AwsWorld) -> None:
    """A burstable type, for example."""
    _, machines = create_both(aws, instance_type="t3.micro")
    assert aws.api.client("ec2").describe_placement_groups()["PlacementGroups"] == []
    end_all(aws, machines)
    assert leftovers(aws.api) == []


def test_a_type_with_an_efa_gets_one_in_the_zones_own_subnet(aws: AwsWorld) -> None:
    """It keeps its public address. A machine alone has no EFA, which would need rules that it doesn't have."""
    provider, machines = create_both(aws, instance_type=EFA)
    provider.create(aws.order(7, instance_type=EFA))
    asked = [call.params.get("NetworkInterface.1.InterfaceType") for call in aws.api.calls(action="RunInstances")]
    assert asked == ["efa", "efa", None]
    shown = {each["InstanceId"]: each for each in aws.instances()}
    assert {shown[machine.provider_id]["Placement"]["AvailabilityZone"] for machine in machines} == {f"{REGION}a"}
    assert all(machine.address is not None for machine in provider.machines())


def test_a_type_whose_first_network_card_has_no_efa_gets_a_plain_interface(aws: AwsWorld) -> None:
    """That of B300 machines takes none, and a second interface would cost them their public address."""
    aws.api.set_quota("L-417A185B", 2 * 192)
    provider, machines = create_both(aws, instance_type=B300)
    assert all(machine.address is not None for machine in provider.machines())
    asked = [call.params.get("NetworkInterface.1.InterfaceType") for call in aws.api.calls(action="RunInstances")]
    assert asked == [None, None]
    end_all(aws, machines)
    assert leftovers(aws.api) == []


def test_a_catalog_of_an_earlier_kedge_does_not_keep_machines_apart(aws: AwsWorld) -> None:
    """Types that it has cached lack what several machines need."""
    aws.provider().create(order(aws, 0))
    (kept,) = [path for path in (aws.folder / "aws").rglob("types-*.json") if TYPE in path.read_text()]
    entry = json.loads(kept.read_text())
    earlier = [{name: each[name] for name in each.keys() - {"clusters", "has_efa"}} for each in entry["value"]]
    name = f"{REGION} {TYPE}"
    kept.unlink()
    path = kept.with_name(f"types-{hashlib.sha256(name.encode()).hexdigest()[:16]}.json")
    path.write_text(json.dumps({**entry, "name": name, "value": earlier}))
    aws.provider().create(order(aws, 1))
    placed = [call.params.get("Placement.GroupName") for call in aws.api.calls(action="RunInstances")]
    assert placed == [NAME, NAME]


def test_the_machines_of_a_run_are_in_one_of_the_users_own_subnets(aws: AwsWorld) -> None:
    """Of two in a zone, the one with more free addresses is the other one as soon as a machine has taken one.

    inferred: aws-efa-one-subnet
    """
    _, subnets, _ = make_network(aws.api, f"{REGION}a", f"{REGION}a")
    _, machines = create_both(aws, site=Site(subnets=tuple(subnets)))
    assert len({each["SubnetId"] for each in aws.instances()}) == 1
    end_all(aws, machines)


def test_a_group_of_the_users_own_without_the_rules_of_an_efa_gets_plain_interfaces(aws: AwsWorld) -> None:
    """NCCL would wait in vain for its first packet. The usual rule, all traffic to everybody, is not enough."""
    _, subnets, group = make_network(aws.api, f"{REGION}a")
    site, ec2 = Site(subnets=tuple(subnets), security_group=group), aws.api.client("ec2")
    own: Any = [{"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": group}]}]
    ec2.authorize_security_group_ingress(GroupId=group, IpPermissions=own)
    aws.provider().create(order(aws, 0, site=site, instance_type=EFA))
    ec2.authorize_security_group_egress(GroupId=group, IpPermissions=own)
    aws.provider().create(order(aws, 1, site=site, instance_type=EFA))
    asked = [call.params.get("NetworkInterface.1.InterfaceType") for call in aws.api.calls(action="RunInstances")]
    assert asked == [None, "efa"]


def test_a_group_that_a_killed_command_has_made_is_used_and_removed(aws: AwsWorld) -> None:
    """It was recorded before it was made, so the teardown knows it."""
    provider = aws.provider()
    provider.create(order(aws, 0))
    again = aws.provider()
    second = again.create(order(aws, 1))
    assert len(aws.api.client("ec2").describe_placement_groups()["PlacementGroups"]) == 1
    end_all(aws, [*again.machines()])
    assert second.rank == 1
    assert leftovers(aws.api) == []


def test_a_left_over_group_is_found_by_a_sweep(aws: AwsWorld) -> None:
    """Another computer's records don't name it: its tag does, and release removes it."""
    _, machines = create_both(aws)
    for machine in machines:
        aws.provider().destroy(machine.id)
    for record in (aws.folder / "aws").rglob("*.json"):
        record.unlink()
    provider = aws.provider()
    found = [left for left in provider.sweep().leftovers if left.kind == "placement group"]
    assert [(left.name, left.run_id, left.region) for left in found] == [(NAME, RUN, REGION)]
    provider.release(RUN)
    assert leftovers(aws.api) == []


def test_somebody_elses_group_of_that_name_is_not_used(aws: AwsWorld) -> None:
    """Nothing is launched into it, and it stays."""
    ec2 = aws.api.client("ec2")
    ec2.create_placement_group(GroupName=NAME, Strategy="cluster")
    with pytest.raises(ConflictError, match="isn't kedge's"):
        aws.provider().create(order(aws, 0))
    assert aws.instances() == []
    aws.provider().release(RUN)
    assert len(ec2.describe_placement_groups()["PlacementGroups"]) == 1


def test_a_run_is_released_by_somebody_who_may_not_list_placement_groups(aws: AwsWorld) -> None:
    """The policy of an operator may be of an earlier kedge, which has made none."""
    aws.provider().create(aws.order())
    aws.provider().destroy(f"{RUN}-m1")
    other = AwsWorld(api=aws.api, folder=aws.folder / "other").provider()
    aws.api.fail_next("DescribePlacementGroups", "UnauthorizedOperation", times=None)
    assert not any(part.may_bill for part in other.sweep().unseen)
    lines = other.release(RUN)
    aws.api.clear_faults()
    assert any(line.startswith(f"kept placement groups of run {RUN} in {REGION}, if there are any: ") for line in lines)
    assert leftovers(aws.api) == []


def test_a_quota_must_have_room_for_all_machines(aws: AwsWorld) -> None:
    """For three, but not for four."""
    aws.api.set_quota("L-1216C47A", 7)
    market = aws.provider()
    assert market.offers(Resources(instance_type=TYPE, regions=(REGION,), num_nodes=3))
    with pytest.raises(NoCapacityError) as caught:
        market.offers(Resources(instance_type=TYPE, regions=(REGION,), num_nodes=4))
    assert "this run needs 8" in caught.value.why


def test_the_checkup_counts_the_vcpus_of_all_machines(aws: AwsWorld) -> None:
    """Each of three has two."""
    wanted = Resources(instance_type=TYPE, regions=(REGION,), num_nodes=3)
    (look,) = (each.look for each in make_probes(aws.context(), wanted) if each.name == QUOTA)
    verdict, found, _ = look()
    assert verdict is Verdict.OK
    assert found.endswith("; 6 needed")
