"""What a launch needs: `Choice` is looked up before anything is created, `RunParts` is created for the run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from orchestrator.adapters.aws_sdk import translate
from orchestrator.adapters.providers.aws.market.images import Image, find_image
from orchestrator.adapters.providers.aws.market.reader import RegionReader
from orchestrator.adapters.providers.aws.own_network import OwnNetwork, find_own_network, subnet_for
from orchestrator.core.errors import BadRequestError
from orchestrator.core.values.disk import Disk, plan_disk

if TYPE_CHECKING:
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
    """

    group_id: str
    profile: str


def choose_machine(aws: AwsContext, order: MachineOrder) -> Choice:
    """Look up an order's type, network and image.

    Raises:
        BadRequestError: the account isn't set up, or the region has no such type, network or image.
        KedgeError: AWS refuses, or doesn't answer.
    """
    account = aws.account()
    kind = _find_type(aws, order)
    own = find_own_network(aws.session.client("ec2", order.region), order.site)
    image = find_image(order, aws.session, order.region, kind.accelerators, cache=aws.cache)
    size_gib = max(order.disk_gib or 0, image.min_disk_gib)
    return Choice(
        account=account,
        type=kind,
        own=own,
        subnet_id=subnet_for(own, order.zone, order.region),
        image=image,
        # Before anything is recorded: the image's own size may rule out the speed that the order asks for.
        disk=plan_disk(size_gib, iops=order.disk_iops, mibps=order.disk_mibps),
    )


def _find_type(aws: AwsContext, order: MachineOrder) -> InstanceType:
    reader = RegionReader(aws.session, order.region, aws.cache, aws.clock)
    try:
        found = reader.types([order.instance_type])
    except (ClientError, BotoCoreError) as err:
        raise translate(err, f"{order.instance_type} can't be looked up in {order.region}") from err
    if not found:
        raise BadRequestError(f"{order.region} has no {order.instance_type}", fix="choose another --instance-type")
    return found[0]
