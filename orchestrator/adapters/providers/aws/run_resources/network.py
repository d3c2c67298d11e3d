"""A run's security groups: they admit the caller to port 22, the run's own machines to each other, and nobody else."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from orchestrator.adapters.aws_sdk import code_of, translate
from orchestrator.adapters.host.retry import retry
from orchestrator.adapters.providers.aws.naming import group_name
from orchestrator.adapters.providers.aws.own_network import no_default_network
from orchestrator.adapters.providers.aws.record import Group
from orchestrator.adapters.providers.aws.tags import RUN, run_tags, tag_specifications
from orchestrator.adapters.providers.aws.traits import APPEARS_IN

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import timedelta

    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_ec2.type_defs import IpPermissionTypeDef

    from orchestrator.core.ports import Clock
    from orchestrator.core.values.site import Site


def make_group(ec2: EC2Client, run_id: str, ssh_from: str, clock: Clock, *, site: Site, vpc_id: str = "") -> Group:
    """Find or create a run's security group in a network; without `vpc_id`, in the account's default VPC.

    Raises:
        KedgeError: AWS doesn't allow it, or the region has no default network.
    """
    what = f"the security group of run {run_id} can't be made"
    try:
        group = Group(id=_make_or_find(ec2, run_id, site, vpc_id), ssh_from="")
        return retry(lambda: open_to(ec2, group, ssh_from), on=_is_unknown, within=APPEARS_IN, clock=clock)
    except ClientError as err:
        if code_of(err) in {"VPCIdNotSpecified", "DefaultVpcDoesNotExist"}:
            raise no_default_network(ec2.meta.region_name) from err
        raise translate(err, what) from err
    except BotoCoreError as err:
        raise translate(err, what) from err


def open_to(ec2: EC2Client, group: Group, ssh_from: str) -> Group:
    """Admit one network to port 22, in place of the one before.

    Raises:
        ClientError, BotoCoreError: AWS doesn't allow it.
    """
    if group.ssh_from == ssh_from:
        return group
    try:
        ec2.authorize_security_group_ingress(GroupId=group.id, IpPermissions=[_permission(ssh_from)])
    except ClientError as err:
        if code_of(err) != "InvalidPermission.Duplicate":
            raise
    if group.ssh_from:
        _close(ec2, group)
    return replace(group, ssh_from=ssh_from)


def admit_peers(ec2: EC2Client, group: Group, clock: Clock) -> Group:
    """Let the machines of a group reach each other: all traffic in and out, which EFA needs as rules of the group.

    Raises:
        KedgeError: AWS doesn't allow it.
    """
    # fact: aws-efa-group-rules
    own: IpPermissionTypeDef = {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": group.id}]}
    requests = (
        partial(ec2.authorize_security_group_ingress, GroupId=group.id, IpPermissions=[own]),
        partial(ec2.authorize_security_group_egress, GroupId=group.id, IpPermissions=[own]),
    )
    for request in requests:
        try:
            retry(request, on=_is_unknown, within=APPEARS_IN, clock=clock)
        except (ClientError, BotoCoreError) as err:
            if not isinstance(err, ClientError) or code_of(err) != "InvalidPermission.Duplicate":
                raise translate(err, f"the machines in {group.id} can't be opened to each other") from err
    return replace(group, peers=True)


def remove_groups(
    ec2: EC2Client, run_id: str, clock: Clock, patience: timedelta, *, known: Group | None = None
) -> Sequence[str]:
    """Delete a run's security groups in a region, or only the known one; return a line for each.

    AWS refuses to delete a group while a network interface of an ending machine uses it.

    Raises:
        KedgeError: AWS doesn't allow it.
    """
    what = f"the security group of run {run_id} can't be removed"
    try:
        found = [known.id] if known else _find(ec2, run_id)
        removed = [
            group_id
            for group_id in found
            if retry(partial(_delete, ec2, group_id), on=_is_still_used, within=patience, clock=clock)
        ]
    except (ClientError, BotoCoreError) as err:
        raise translate(err, what) from err
    return [f"removed security group {group_id} in {ec2.meta.region_name}" for group_id in removed]


def _make_or_find(ec2: EC2Client, run_id: str, site: Site, vpc_id: str) -> str:
    try:
        return ec2.create_security_group(
            GroupName=group_name(run_id),
            Description=f"kedge: SSH to run {run_id} from the address of its owner",
            TagSpecifications=tag_specifications(run_tags(run_id, site), "security-group"),
            **({"VpcId": vpc_id} if vpc_id else {}),  # type: ignore[arg-type]
        )["GroupId"]
    except ClientError as err:
        if code_of(err) != "InvalidGroup.Duplicate":
            raise
        found = _find(ec2, run_id)
        if not found:
            raise
        _close_all(ec2, found[0])
        return found[0]


def _find(ec2: EC2Client, run_id: str) -> list[str]:
    """Find a run's groups by tag: somebody else's group may have the same name."""
    answer = ec2.describe_security_groups(Filters=[{"Name": f"tag:{RUN}", "Values": [run_id]}])
    return [group.get("GroupId", "") for group in answer["SecurityGroups"]]


def _close_all(ec2: EC2Client, group_id: str) -> None:
    """Revoke every rule: there is no record of what an earlier command, or another laptop, has admitted."""
    group = ec2.describe_security_groups(GroupIds=[group_id])["SecurityGroups"][0]
    permissions = group.get("IpPermissions", [])
    if permissions:
        ec2.revoke_security_group_ingress(GroupId=group_id, IpPermissions=permissions)


def _close(ec2: EC2Client, group: Group) -> None:
    try:
        ec2.revoke_security_group_ingress(GroupId=group.id, IpPermissions=[_permission(group.ssh_from)])
    except ClientError as err:
        if code_of(err) != "InvalidPermission.NotFound":
            raise


def _delete(ec2: EC2Client, group_id: str) -> bool:
    """Delete a group; False if there was none."""
    try:
        ec2.delete_security_group(GroupId=group_id)
    except ClientError as err:
        if code_of(err) != "InvalidGroup.NotFound":
            raise
        return False
    return True


def _is_still_used(err: BaseException) -> bool:
    return isinstance(err, ClientError) and code_of(err) in {"DependencyViolation", "InvalidGroup.InUse"}


def _is_unknown(err: BaseException) -> bool:
    return isinstance(err, ClientError) and code_of(err) == "InvalidGroup.NotFound"


def _permission(network: str) -> IpPermissionTypeDef:
    port: IpPermissionTypeDef = {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22}
    match ip_network(network):
        case IPv4Network():
            port["IpRanges"] = [{"CidrIp": network, "Description": "kedge: the address of its owner"}]
        case IPv6Network():
            port["Ipv6Ranges"] = [{"CidrIpv6": network, "Description": "kedge: the address of its owner"}]
    return port
