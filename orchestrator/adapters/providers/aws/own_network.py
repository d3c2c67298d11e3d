"""Looks up the network for machines: the user's own subnets and security group, or the account's default VPC.

Nothing here changes a network. A region that lacks a named id is left out, since ids belong to one region.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from orchestrator.adapters.aws_sdk import translate
from orchestrator.adapters.providers.aws.access.closed import NotInRegionError
from orchestrator.core.errors import BadRequestError
from orchestrator.core.values.network import EVERYBODY, open_families

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_ec2.type_defs import IpPermissionOutputTypeDef, SecurityGroupTypeDef, SubnetTypeDef, VpcTypeDef

    from orchestrator.core.values.site import Site

_SSH = 22


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnNetwork:
    """The user's own network in one region.

    Attributes:
        cidr: the network's own range of addresses.
        group_id: empty if kedge creates a group.
        subnets: for each zone, by name and by id, the subnet with the most free addresses.
        usable: all subnets that machines may be in.
        serves_efa: the group, if it is the user's own, allows all traffic from itself and to itself.
    """

    vpc_id: str
    cidr: str
    group_id: str = ""
    subnets: Mapping[str, str] = field(default_factory=dict)
    usable: frozenset[str] = frozenset()
    serves_efa: bool = True


def find_own_network(ec2: EC2Client, site: Site) -> OwnNetwork | None:
    """Look a network up; None if machines go into the default VPC, with public addresses.

    For a private site, the network's range of addresses is needed: the jump host connects from one of them.

    Raises:
        NotInRegionError: the region lacks something that the user named, or no subnet fits.
        BadRequestError: the named ids are of different networks, or the group admits everybody, or nobody.
        KedgeError: AWS refuses, or doesn't answer.
    """
    _refuse_unreachable(site)
    if not site.names_network and not site.is_private:
        return None
    try:
        group = _find_group(ec2, site)
        named = _named_subnets(ec2, site)
        vpc = _find_vpc(ec2, site, site.vpc or (group or {}).get("VpcId", "") or (named[0]["VpcId"] if named else ""))
        subnets = named or _usable_subnets(ec2, site, vpc["VpcId"])
        ssh_ranges = _ssh_ranges(ec2, group) if group else []
    except (ClientError, BotoCoreError) as err:
        raise translate(err, f"your network in {ec2.meta.region_name} can't be looked up") from err
    vpc_id, cidr = vpc["VpcId"], vpc["CidrBlock"]
    _refuse_strangers(site, vpc_id, group, subnets)
    _refuse_open(site, ssh_ranges)
    by_room = sorted(subnets, key=lambda subnet: subnet["AvailableIpAddressCount"])
    by_zone = {
        zone: each["SubnetId"] for each in by_room for zone in (each["AvailabilityZone"], each["AvailabilityZoneId"])
    }
    usable = frozenset(each["SubnetId"] for each in subnets)
    return OwnNetwork(
        vpc_id=vpc_id,
        cidr=cidr,
        group_id=site.security_group,
        subnets=by_zone,
        usable=usable,
        serves_efa=group is None or _serves_efa(group),
    )


def require_default_network(ec2: EC2Client) -> VpcTypeDef:
    """Return the account's default VPC in a region, which machines use if no other network is named.

    Raises:
        NotInRegionError: the region has no default VPC.
        ClientError, BotoCoreError: AWS refuses, or doesn't answer.
    """
    # fact: aws-no-default-vpc
    found = ec2.describe_vpcs(Filters=[{"Name": "is-default", "Values": ["true"]}])["Vpcs"]
    if not found:
        raise no_default_network(ec2.meta.region_name)
    return found[0]


def no_default_network(region: str) -> NotInRegionError:
    """Return the error for a region without a default VPC, if no other network is named."""
    return NotInRegionError(
        f"there is no default VPC in {region}",
        why="machines go into it, since the `provider:` block names no other network",
        fix="name a subnet of yours as `provider: {aws: {subnet: subnet-...}}` in the job file or in your settings, or"
        f" make a default VPC with `aws ec2 create-default-vpc --region {region}`",
    )


def subnet_for(own: OwnNetwork | None, zone: str, region: str) -> str:
    """Return the subnet for a zone; empty for the zone's default subnet.

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
    # A filter gives an empty answer for a missing group, where an id would give an error.
    found = ec2.describe_security_groups(Filters=[{"Name": "group-id", "Values": [site.security_group]}])
    if not found["SecurityGroups"]:
        raise _not_there(ec2, site, "security_group", f"security group {site.security_group}")
    return found["SecurityGroups"][0]


def _named_subnets(ec2: EC2Client, site: Site) -> list[SubnetTypeDef]:
    if not site.subnets:
        return []
    found = _ask_subnets(ec2, "subnet-id", site.subnets)
    if not found:
        raise _not_there(ec2, site, "subnet", " or ".join(site.subnets))
    return found


def _find_vpc(ec2: EC2Client, site: Site, vpc_id: str) -> VpcTypeDef:
    """Find a VPC; without an id, the account's default VPC."""
    if not vpc_id:
        return require_default_network(ec2)
    found = ec2.describe_vpcs(Filters=[{"Name": "vpc-id", "Values": [vpc_id]}])["Vpcs"]
    if not found:
        raise _not_there(ec2, site, "vpc", vpc_id)
    return found[0]


def _usable_subnets(ec2: EC2Client, site: Site, vpc_id: str) -> list[SubnetTypeDef]:
    """Find a VPC's subnets in which machines can be reached."""
    key = "vpc" if site.vpc else "security_group"
    found = _ask_subnets(ec2, "vpc-id", [vpc_id])
    if not found:
        raise _not_there(ec2, site, key, f"subnet of {vpc_id}")
    if site.is_private:
        return found
    # A machine in a subnet without internet access boots, bills, and can never be reached.
    public = [subnet for subnet in found if subnet["MapPublicIpOnLaunch"]]
    if not public:
        raise NotInRegionError(
            f"{site.where(key)}no subnet of {vpc_id} in {ec2.meta.region_name} is "
            "set to give machines a public address",
            why="machines have one unless they are reached through a jump host, and not every subnet lets them use it",
            fix="name the subnet with `subnet:`, or set `jump_host`, `proxy_command` or `private_ip: true`",
        )
    return public


def _ask_subnets(ec2: EC2Client, name: str, values: Sequence[str]) -> list[SubnetTypeDef]:
    pages = ec2.get_paginator("describe_subnets").paginate(Filters=[{"Name": name, "Values": values}])
    return [subnet for page in pages for subnet in page["Subnets"]]


def _refuse_unreachable(site: Site) -> None:
    """Refuse machines with a public address that are reached through a jump host with an unknown address."""
    key = "jump_host" if site.jump_host else "proxy_command" if site.proxy_command else ""
    if not key or site.is_private or site.ssh_from or site.security_group:
        return
    raise BadRequestError(
        f"{site.where(key)}it isn't known from which address `{key}` reaches the machines",
        why="they have a public address (`private_ip: false`), so it needn't be an address of their VPC",
        fix="name its addresses with --ssh-from, name a `security_group`, or leave `private_ip` out",
    )


def _refuse_strangers(
    site: Site, vpc_id: str, group: SecurityGroupTypeDef | None, subnets: Sequence[SubnetTypeDef]
) -> None:
    """Refuse a group and subnets of different networks; EC2 would refuse them too, but only at the launch."""
    for subnet in subnets:
        if subnet["VpcId"] != vpc_id:
            raise BadRequestError(
                f"{site.where('subnet')}{subnet['SubnetId']} is not a subnet of {vpc_id}",
                why=f"it is one of {subnet['VpcId']}; a machine's subnet and security group are of one network",
                fix="name subnets of that network, or leave `vpc` or `security_group` out",
            )
    if group is not None and group.get("VpcId") != vpc_id:
        raise BadRequestError(
            f"{site.where('security_group')}{site.security_group} is not a security group of {vpc_id}",
            why=f"it is one of {group.get('VpcId')}",
            fix="name a group of that network, or leave it out: kedge makes one for each run",
        )


def _serves_efa(group: SecurityGroupTypeDef) -> bool:
    """Tell whether a group has the two rules that an EFA needs. fact: aws-efa-group-rules."""
    rules = (group.get("IpPermissions", []), group.get("IpPermissionsEgress", []))
    return all(any(_is_all_of(group, rule) for rule in each) for each in rules)


def _is_all_of(group: SecurityGroupTypeDef, rule: IpPermissionOutputTypeDef) -> bool:
    named = {pair.get("GroupId") for pair in rule.get("UserIdGroupPairs", [])}
    return rule.get("IpProtocol") == "-1" and group.get("GroupId") in named


def _ssh_ranges(ec2: EC2Client, group: SecurityGroupTypeDef) -> list[str]:
    """List the CIDRs that a group admits to port 22; rules that name other groups admit the user's own networks."""
    rules = [rule for rule in group.get("IpPermissions", []) if _covers_ssh(rule)]
    ranges = [each["CidrIp"] for rule in rules for each in rule.get("IpRanges", [])]
    ranges += [each["CidrIpv6"] for rule in rules for each in rule.get("Ipv6Ranges", [])]
    for listed in {each["PrefixListId"] for rule in rules for each in rule.get("PrefixListIds", [])}:
        pages = ec2.get_paginator("get_managed_prefix_list_entries").paginate(PrefixListId=listed)
        ranges += [entry["Cidr"] for page in pages for entry in page["Entries"]]
    return ranges


def _refuse_open(site: Site, ssh_ranges: Sequence[str]) -> None:
    """Refuse a group that admits everybody by IPv4 or IPv6, unless the launch asks for that."""
    families = [EVERYBODY[version] for version in open_families(ssh_ranges)]
    for everybody in families:
        if everybody == site.ssh_from:
            continue
        meant = f", or confirm it with --ssh-from {everybody}" if len(families) == 1 else ""
        raise BadRequestError(
            f"{site.where('security_group')}{site.security_group} lets everybody reach port {_SSH}",
            why=f"its rules open it to nearly all of {everybody}; machines are closed by default",
            fix=f"narrow those rules, or leave the group out{meant}",
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
