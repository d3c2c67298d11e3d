"""A network of the user's own: its subnets and its security group, looked up and never changed.

What isn't found in a region is a reason to leave that region out: ids belong to one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from orchestrator.adapters.aws_sdk import translate
from orchestrator.adapters.providers.aws.closed import NotInRegionError
from orchestrator.core.errors import BadRequestError
from orchestrator.core.network import is_everybody

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_ec2.type_defs import IpPermissionOutputTypeDef, SecurityGroupTypeDef, SubnetTypeDef

    from orchestrator.core.site import Site

_SSH = 22


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnNetwork:
    """What there is in one region.

    Attributes:
        cidr: the network's own range of addresses.
        group_id: empty where kedge makes one.
        subnets: by zone, the one with the most free addresses; a zone counts by its name and by its id.
    """

    vpc_id: str
    cidr: str
    group_id: str = ""
    subnets: Mapping[str, str] = field(default_factory=dict)


def find_own_network(ec2: EC2Client, site: Site) -> OwnNetwork | None:
    """Look a network up; None where the account's default one is to be taken.

    Raises:
        NotInRegionError: something that was named isn't there.
        BadRequestError: what was named doesn't belong together, or lets everybody in.
        KedgeError: AWS doesn't tell.
    """
    if not site.names_network:
        return None
    try:
        group = _find_group(ec2, site)
        subnets = _find_subnets(ec2, site, site.vpc or (group or {}).get("VpcId", ""))
        vpc_id = site.vpc or (group or {}).get("VpcId", "") or subnets[0]["VpcId"]
        cidr = _find_vpc(ec2, site, vpc_id)
    except (ClientError, BotoCoreError) as err:
        raise translate(err, f"your network in {ec2.meta.region_name} can't be looked up") from err
    _refuse_strangers(site, vpc_id, group, subnets)
    if group is not None:
        _refuse_open(site, group)
    by_room = sorted(subnets, key=lambda subnet: subnet["AvailableIpAddressCount"])
    by_zone = {
        zone: each["SubnetId"] for each in by_room for zone in (each["AvailabilityZone"], each["AvailabilityZoneId"])
    }
    return OwnNetwork(vpc_id=vpc_id, cidr=cidr, group_id=site.security_group, subnets=by_zone)


def subnet_for(own: OwnNetwork | None, zone: str, region: str) -> str:
    """Return the subnet for a zone; empty for the zone's default one.

    Raises:
        NotInRegionError: the network has none there.
    """
    if own is None:
        return ""
    if zone in own.subnets:
        return own.subnets[zone]
    raise NotInRegionError(
        f"{own.vpc_id} has no subnet in {zone or region}", fix="choose another --zone, or name another subnet"
    )


def _find_group(ec2: EC2Client, site: Site) -> SecurityGroupTypeDef | None:
    if not site.security_group:
        return None
    # By a filter: what isn't there is then no error, but an empty answer.
    found = ec2.describe_security_groups(Filters=[{"Name": "group-id", "Values": [site.security_group]}])
    if not found["SecurityGroups"]:
        raise _not_there(ec2, site, "security_group", f"security group {site.security_group}")
    return found["SecurityGroups"][0]


def _find_subnets(ec2: EC2Client, site: Site, vpc_id: str) -> Sequence[SubnetTypeDef]:
    named = {"Name": "subnet-id", "Values": list(site.subnets)} if site.subnets else None
    pages = ec2.get_paginator("describe_subnets").paginate(
        Filters=[named or {"Name": "vpc-id", "Values": [vpc_id]}]  # type: ignore[list-item]  # both have this shape
    )
    found = [subnet for page in pages for subnet in page["Subnets"]]
    if not found:
        key = "subnet" if site.subnets else "vpc" if site.vpc else "security_group"
        raise _not_there(ec2, site, key, " or ".join(site.subnets) or f"subnet of {vpc_id}")
    return found


def _find_vpc(ec2: EC2Client, site: Site, vpc_id: str) -> str:
    found = ec2.describe_vpcs(Filters=[{"Name": "vpc-id", "Values": [vpc_id]}])["Vpcs"]
    if not found:
        raise _not_there(ec2, site, "vpc", vpc_id)
    return found[0]["CidrBlock"]


def _refuse_strangers(
    site: Site, vpc_id: str, group: SecurityGroupTypeDef | None, subnets: Sequence[SubnetTypeDef]
) -> None:
    """EC2 refuses an interface whose group and subnet are of different networks, and only at the launch."""
    for subnet in subnets:
        if subnet["VpcId"] != vpc_id:
            raise BadRequestError(
                f"{site.where('subnet')}{subnet['SubnetId']} is no subnet of {vpc_id}",
                why=f"it is one of {subnet['VpcId']}; a machine's subnet and security group are of one network",
                fix="name subnets of that network, or leave `vpc` or `security_group` out",
            )
    if group is not None and group.get("VpcId") != vpc_id:
        raise BadRequestError(
            f"{site.where('security_group')}{site.security_group} is no security group of {vpc_id}",
            why=f"it is one of {group.get('VpcId')}",
            fix="name a group of that network, or leave it out: kedge makes one for each run",
        )


def _refuse_open(site: Site, group: SecurityGroupTypeDef) -> None:
    """Refuse a group that lets everybody in, unless that is what the launch asks for."""
    if is_everybody(site.ssh_from):
        return
    for rule in group.get("IpPermissions", []):
        ranges = [each.get("CidrIp", "") for each in rule.get("IpRanges", [])]
        ranges += [each.get("CidrIpv6", "") for each in rule.get("Ipv6Ranges", [])]
        for network in ranges:
            if is_everybody(network) and _covers_ssh(rule):
                raise BadRequestError(
                    f"{site.where('security_group')}{site.security_group} lets everybody reach port {_SSH}",
                    why=f"one of its rules opens it to {network}; machines are closed by default",
                    fix=f"narrow that rule, leave the group out, or say that it is meant with --ssh-from {network}",
                )


def _covers_ssh(rule: IpPermissionOutputTypeDef) -> bool:
    if rule.get("IpProtocol") == "-1":
        return True
    return rule.get("IpProtocol") in ("tcp", "6") and rule.get("FromPort", 0) <= _SSH <= rule.get("ToPort", 65535)


def _not_there(ec2: EC2Client, site: Site, key: str, what: str) -> NotInRegionError:
    return NotInRegionError(
        f"{site.where(key)}there is no {what} in {ec2.meta.region_name}",
        why="ids belong to one region of one account",
        fix="correct the `provider:` block, or choose the --region where it is",
    )
