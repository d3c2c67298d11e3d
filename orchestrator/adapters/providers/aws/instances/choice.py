"""What a launch needs: `Choice` is looked up before anything is created, `RunParts` is created for the run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from orchestrator.adapters.aws_sdk import translate
from orchestrator.adapters.providers.aws.access.closed import NotInRegionError
from orchestrator.adapters.providers.aws.access.zones import is_zone_id
from orchestrator.adapters.providers.aws.market.images import Image, find_image
from orchestrator.adapters.providers.aws.market.reader import RegionReader
from orchestrator.adapters.providers.aws.own_network import OwnNetwork, find_own_network, subnet_for
from orchestrator.core.errors import BadRequestError
from orchestrator.core.values.disk import Disk, plan_disk

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_ec2.type_defs import FilterTypeDef

    from orchestrator.adapters.providers.aws.account.level import Account
    from orchestrator.adapters.providers.aws.context import AwsContext
    from orchestrator.adapters.providers.aws.market.catalog import InstanceType
    from orchestrator.core.machine import MachineOrder


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What was looked up for an order.

    Attributes:
        account: the account level.
        own: the user's own network; None for the default VPC.
        subnet_id: the user's own subnet in the order's zone; empty for the zone's default subnet.
    """

    account: Account
    type: InstanceType
    image: Image
    disk: Disk
    own: OwnNetwork | None = None
    subnet_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunParts:
    """The run's resources that a launch names.

    Attributes:
        group_id: of the security group.
        profile: the instance profile's name.
        placement: the name of the placement group; empty for none.
        efa: the machine's network interface is an Elastic Fabric Adapter.
    """

    group_id: str
    profile: str
    placement: str = ""
    efa: bool = False


def choose_machine(aws: AwsContext, order: MachineOrder) -> Choice:
    """Look up an order's type, network and image.

    Raises:
        BadRequestError: the account isn't set up, or the region has no such type, network or image.
        KedgeError: AWS refuses, or doesn't answer.
    """
    account = aws.account()
    kind = _find_type(aws, order)
    ec2 = aws.session.client("ec2", order.region)
    own = find_own_network(ec2, order.site)
    image = find_image(order, aws.session, order.region, kind.accelerators, cache=aws.cache)
    size_gib = max(order.disk_gib or 0, image.min_disk_gib)
    return Choice(
        account=account,
        type=kind,
        own=own,
        subnet_id=_subnet(aws, ec2, order, kind, own),
        image=image,
        # Before anything is recorded: the image's own size may rule out the speed that the order asks for.
        disk=plan_disk(size_gib, iops=order.disk_iops, mibps=order.disk_mibps),
    )


def _subnet(aws: AwsContext, ec2: EC2Client, order: MachineOrder, kind: InstanceType, own: OwnNetwork | None) -> str:
    """Return the subnet of a run's other machines, the zone's own, or nothing for its default one.

    An EFA may not reach another subnet (inferred: aws-efa-one-subnet).
    """
    if own is not None and order.num_nodes > 1:
        known = aws.records.run(order.run_id).subnets.get(order.zone, "")
        if known in own.usable:
            return known
    return subnet_for(own, order.zone, order.region) or _subnet_for_efa(ec2, order, kind)


def _subnet_for_efa(ec2: EC2Client, order: MachineOrder, kind: InstanceType) -> str:
    """Return the zone's default subnet for machines with an EFA, whose requests must name one; empty for others."""
    if order.num_nodes == 1 or not kind.has_efa or not order.zone:
        return ""
    # fact: aws-efa-needs-subnet
    zone = "availability-zone-id" if is_zone_id(order.zone) else "availability-zone"
    filters: list[FilterTypeDef] = [
        {"Name": zone, "Values": [order.zone]},
        {"Name": "default-for-az", "Values": ["true"]},
    ]
    try:
        found = ec2.describe_subnets(Filters=filters)["Subnets"]
    except (ClientError, BotoCoreError) as err:
        raise translate(err, f"the default subnet of {order.zone} can't be looked up") from err
    if not found:
        raise NotInRegionError(f"{order.zone} has no default subnet", fix="choose another --zone, or name a subnet")
    return found[0]["SubnetId"]


def _find_type(aws: AwsContext, order: MachineOrder) -> InstanceType:
    reader = RegionReader(aws.session, order.region, aws.cache, aws.clock)
    try:
        found = reader.types([order.instance_type])
    except (ClientError, BotoCoreError) as err:
        raise translate(err, f"{order.instance_type} can't be looked up in {order.region}") from err
    if not found:
        raise BadRequestError(f"{order.region} has no {order.instance_type}", fix="choose another --instance-type")
    return found[0]
