"""The user's own network at AWS is checked while planning."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from orchestrator.core.errors import BadRequestError
from orchestrator.core.job import Resources
from orchestrator.core.values.site import Site
from tests.adapters.aws.networks import WHERE, find_subnets, make_network, open_group
from tests.adapters.aws.world import AwsWorld
from tests.cloudbox.aws.box import REGION, Box

SAID = Site(said_at=WHERE)


def open_group_to_list(api: Box, group: str, *networks: str) -> None:
    """Admit all networks of a new prefix list to a security group."""
    ec2 = api.client("ec2")
    made = ec2.create_managed_prefix_list(
        PrefixListName="offices",
        Entries=[{"Cidr": each} for each in networks],
        MaxEntries=5,
        AddressFamily="IPv6" if ":" in networks[0] else "IPv4",
    )
    rule = {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22}
    lists = [{"PrefixListId": made["PrefixList"]["PrefixListId"]}]
    ec2.authorize_security_group_ingress(GroupId=group, IpPermissions=[{**rule, "PrefixListIds": lists}])


def delete_default_network(api: Box) -> None:
    """Delete the region's default VPC."""
    ec2 = api.client("ec2")
    (vpc,) = (each["VpcId"] for each in ec2.describe_vpcs()["Vpcs"] if each["IsDefault"])
    for subnet in ec2.describe_subnets()["Subnets"]:
        ec2.delete_subnet(SubnetId=subnet["SubnetId"])
    ec2.delete_vpc(VpcId=vpc)


def zones_offered(aws: AwsWorld, site: Site, **requirements: Any) -> set[str]:
    return {
        offer.zone for offer in aws.provider().offers(Resources(instance_type="m5.large", site=site, **requirements))
    }


def test_machines_are_offered_where_the_network_has_a_subnet(aws: AwsWorld) -> None:
    """The job names subnets, a VPC (all of its subnets), or a group (all subnets of its VPC)."""
    vpc, subnets, group = make_network(aws.api, "us-east-1a", "us-east-1c")
    assert zones_offered(aws, Site(subnets=(subnets[1],))) == {"us-east-1c"}
    assert zones_offered(aws, Site(vpc=vpc)) == {"us-east-1a", "us-east-1c"}
    assert zones_offered(aws, Site(security_group=group)) == {"us-east-1a", "us-east-1c"}


@pytest.mark.parametrize(
    ("change", "line", "missing"),
    [
        ({"subnets": ("subnet-0a1b2c3d4e5f60718",)}, 7, "subnet-0a1b2c3d4e5f60718"),
        ({"security_group": "sg-0a1b2c3d4e5f60718"}, 8, "security group sg-0a1b2c3d4e5f60718"),
        ({"vpc": "vpc-0a1b2c3d4e5f60718"}, 6, "vpc-0a1b2c3d4e5f60718"),
    ],
)
def test_an_unknown_id_is_refused_while_planning_with_its_line(
    aws: AwsWorld, change: dict[str, Any], line: int, missing: str
) -> None:
    """Before anything is created. AWS would refuse it only after the role exists."""
    with pytest.raises(BadRequestError) as refused:
        zones_offered(aws, replace(SAID, **change))
    assert refused.value.what == f"kedge.yaml:{line}: there is no {missing} in us-east-1"


def test_regions_without_the_network_are_left_out(aws: AwsWorld) -> None:
    """An id belongs to one region."""
    _, subnets, _ = make_network(aws.api, "us-west-2a", region="us-west-2")
    provider = aws.provider()
    resources = Resources(instance_type="m5.large", regions=(REGION, "us-west-2"), site=Site(subnets=tuple(subnets)))
    assert {offer.region for offer in provider.offers(resources)} == {"us-west-2"}
    assert f"us-east-1 is left out: there is no {subnets[0]} in us-east-1" in provider.offers_basis


def test_subnets_and_groups_of_different_networks_are_refused(aws: AwsWorld) -> None:
    """EC2 would refuse them at the launch.

    fact: aws-one-network
    """
    vpc, subnets, _ = make_network(aws.api, "us-east-1a")
    group = aws.api.client("ec2").create_security_group(GroupName="other", Description="other")["GroupId"]
    with pytest.raises(BadRequestError, match=r"kedge\.yaml:7: .* is not a subnet of"):
        zones_offered(aws, replace(SAID, subnets=tuple(subnets), security_group=group))
    with pytest.raises(BadRequestError, match=r"kedge\.yaml:8: .* is not a security group of"):
        zones_offered(aws, replace(SAID, vpc=vpc, security_group=group))


@pytest.mark.parametrize(
    ("network", "rule"),
    [
        ("0.0.0.0/0", {}),
        ("::/0", {}),
        ("0.0.0.0/0", {"FromPort": 0, "ToPort": 1024}),
        ("0.0.0.0/0", {"IpProtocol": "-1"}),
    ],
)
def test_a_group_open_to_everybody_is_refused_unless_the_user_allows_it(
    aws: AwsWorld, network: str, rule: dict[str, Any]
) -> None:
    """`--ssh-from 0.0.0.0/0` allows it. Ports other than 22 are the user's business."""
    _, _, group = make_network(aws.api, "us-east-1a")
    open_group(aws.api, group, "0.0.0.0/0", FromPort=80, ToPort=80)
    site = replace(SAID, security_group=group)
    assert zones_offered(aws, site) == {"us-east-1a"}
    open_group(aws.api, group, network, **rule)
    with pytest.raises(BadRequestError, match=r"kedge\.yaml:8: .* lets everybody reach port 22") as refused:
        zones_offered(aws, site)
    assert f"--ssh-from {network}" in refused.value.fix
    assert zones_offered(aws, replace(site, ssh_from=network)) == {"us-east-1a"}
    with pytest.raises(BadRequestError, match="lets everybody reach"):
        zones_offered(aws, replace(site, ssh_from="0.0.0.0/0" if network == "::/0" else "::/0"))


@pytest.mark.parametrize("halves", [("0.0.0.0/1", "128.0.0.0/1"), ("::/1", "8000::/1")])
@pytest.mark.parametrize("listed", [False, True])
def test_a_group_whose_ranges_together_admit_everybody_is_refused(
    aws: AwsWorld, halves: tuple[str, ...], listed: bool
) -> None:
    """Also if the ranges are in a prefix list.

    fact: aws-prefix-list-entries
    """
    _, _, group = make_network(aws.api, "us-east-1a")
    site = replace(SAID, security_group=group)
    if listed:
        open_group_to_list(aws.api, group, "198.51.100.0/24")
        assert zones_offered(aws, site) == {"us-east-1a"}
        open_group_to_list(aws.api, group, *halves)
    else:
        for half in halves:
            open_group(aws.api, group, half)
    with pytest.raises(BadRequestError, match=r"kedge\.yaml:8: .* lets everybody reach port 22"):
        zones_offered(aws, site)


def test_a_public_machine_is_never_placed_in_a_private_subnet_that_nobody_named(aws: AwsWorld) -> None:
    """It would start there, bill, and never be reachable. A private machine may be in either kind of subnet.

    fact: aws-public-subnets
    """
    vpc, (public,), group = make_network(aws.api, "us-east-1a")
    ec2 = aws.api.client("ec2")
    wider = ec2.create_subnet(VpcId=vpc, CidrBlock="10.7.16.0/20", AvailabilityZone="us-east-1a")
    private = wider["Subnet"]["SubnetId"]
    for site in (Site(vpc=vpc), Site(security_group=group)):
        assert set(find_subnets(aws, site).values()) == {public}
    assert set(find_subnets(aws, Site(vpc=vpc, private=True)).values()) == {private}
    assert set(find_subnets(aws, Site(subnets=(private,))).values()) == {private}
    ec2.modify_subnet_attribute(SubnetId=public, MapPublicIpOnLaunch={"Value": False})
    with pytest.raises(BadRequestError, match=r"kedge\.yaml:6: no subnet of .* public address") as refused:
        zones_offered(aws, replace(SAID, vpc=vpc))
    assert "`subnet:`" in refused.value.fix


@pytest.mark.parametrize("way", [{"jump_host": "me@bastion"}, {"proxy_command": "nc %h %p"}])
def test_a_public_machine_behind_a_jump_host_needs_a_range_or_a_group(aws: AwsWorld, way: dict[str, Any]) -> None:
    """Connections come neither from the laptop's address nor from the machine's network."""
    _, _, group = make_network(aws.api, "us-east-1a")
    site = Site(private=False, **way)
    with pytest.raises(BadRequestError, match="it isn't known from which address"):
        zones_offered(aws, site)
    assert zones_offered(aws, replace(site, ssh_from="198.51.100.7/32"))
    assert zones_offered(aws, replace(site, security_group=group))


def test_without_a_default_network_the_plan_asks_for_a_subnet(aws: AwsWorld) -> None:
    """Many accounts have no default network. A job that names a subnet needs none.

    fact: aws-no-default-vpc
    """
    delete_default_network(aws.api)
    with pytest.raises(BadRequestError, match="there is no default VPC in us-east-1") as refused:
        zones_offered(aws, Site())
    assert "provider: {aws: {subnet: subnet-...}}" in refused.value.fix
    assert "aws ec2 create-default-vpc --region us-east-1" in refused.value.fix
    with pytest.raises(BadRequestError) as too_late:
        aws.provider().create(aws.order())
    assert (too_late.value.what, too_late.value.fix) == (refused.value.what, refused.value.fix)
    assert aws.instances() == []
    _, subnets, _ = make_network(aws.api, "us-east-1a")
    assert zones_offered(aws, Site(subnets=tuple(subnets))) == {"us-east-1a"}
    assert aws.provider().create(aws.order(site=Site(subnets=tuple(subnets)))).region == REGION


def test_regions_without_a_default_network_are_left_out(aws: AwsWorld) -> None:
    """A note says so. It takes one call for each offered region."""
    delete_default_network(aws.api)
    aws.api.reset_calls()
    provider = aws.provider()
    resources = Resources(instance_type="m5.large", regions=(REGION, "us-west-2"))
    assert {offer.region for offer in provider.offers(resources)} == {"us-west-2"}
    assert "us-east-1 is left out: there is no default VPC in us-east-1" in provider.offers_basis
    assert sorted(call.region for call in aws.api.calls("ec2", "DescribeVpcs")) == [REGION, "us-west-2"]
