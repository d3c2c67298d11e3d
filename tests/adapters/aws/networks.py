"""Create networks of the user's own in the box, and read them back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orchestrator.adapters.providers.aws.own_network import find_own_network
from orchestrator.core.values.site import Site
from tests.adapters.aws.world import AwsWorld
from tests.cloudbox.aws.box import REGION, Box

WHERE = (("subnet", "kedge.yaml:7"), ("security_group", "kedge.yaml:8"), ("vpc", "kedge.yaml:6"))


def make_network(api: Box, *zones: str, region: str = REGION) -> tuple[str, list[str], str]:
    """Make a network with a public subnet in each zone, and a security group that admits one address."""
    ec2 = api.client("ec2", region)
    vpc = ec2.create_vpc(CidrBlock="10.7.0.0/16")["Vpc"]["VpcId"]
    subnets = [
        ec2.create_subnet(VpcId=vpc, CidrBlock=f"10.7.{number}.0/24", AvailabilityZone=zone)["Subnet"]["SubnetId"]
        for number, zone in enumerate(zones)
    ]
    for subnet in subnets:
        ec2.modify_subnet_attribute(SubnetId=subnet, MapPublicIpOnLaunch={"Value": True})
    group = ec2.create_security_group(GroupName="mine", Description="mine", VpcId=vpc)["GroupId"]
    open_group(api, group, "198.51.100.7/32", region=region)
    return vpc, subnets, group


def open_group(api: Box, group: str, network: str, *, region: str = REGION, **rule: Any) -> None:
    """Admit a network to a security group."""
    port = {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, **rule}
    kind = {"Ipv6Ranges": [{"CidrIpv6": network}]} if ":" in network else {"IpRanges": [{"CidrIp": network}]}
    api.client("ec2", region).authorize_security_group_ingress(GroupId=group, IpPermissions=[{**port, **kind}])


def find_subnets(aws: AwsWorld, site: Site) -> Mapping[str, str]:
    """Return the subnets for a site's machines, by zone."""
    found = find_own_network(aws.api.client("ec2"), site)
    assert found is not None
    return found.subnets


def group_rules(api: Box, group: str) -> list[Any]:
    found = api.client("ec2").describe_security_groups(GroupIds=[group])["SecurityGroups"]
    return [each["IpPermissions"] for each in found]
