"""EC2's rules for launches that moto doesn't have."""

from __future__ import annotations

import binascii
from base64 import b64decode
from decimal import Decimal

from moto.ec2.exceptions import InvalidSubnetIdError
from moto.ec2.models.instance_types import INSTANCE_TYPES

from tests.cloudbox.aws.rules.quotas import QuotaBook
from tests.cloudbox.aws.rules.spot import SpotMarket
from tests.cloudbox.aws.wire import moto_state
from tests.cloudbox.aws.wire.answers import AwsError
from tests.cloudbox.aws.wire.call import Call

USER_DATA_LIMIT = 16384
"""Bytes, before base64: docs.aws.amazon.com/AWSEC2/latest/UserGuide/user-data.html. fact: aws-user-data-limit."""


def check_launch(call: Call, quotas: QuotaBook, spot: SpotMarket) -> None:
    """Refuse what EC2 would refuse.

    Raises:
        AwsError: The launch breaks a rule.
    """
    _check_user_data(call)
    instance_type = call.params.get("InstanceType")
    if not instance_type:
        return
    zone = moto_state.zone_of_launch(call)
    _check_offered(instance_type, call.region, zone)
    _check_interfaces(call)
    _check_groups(call)
    _check_network(call)
    market = "spot" if call.spot else "on-demand"
    count = int(call.params.get("MinCount", 1))
    quotas.check(region=call.region, instance_type=instance_type, market=market, count=count)
    if call.spot:
        _check_bid(call, spot, instance_type, zone or f"{call.region}a")


def check_group(call: Call) -> None:
    """Refuse a security group without a network where the account has no default one; moto takes it.

    fact: aws-no-default-vpc

    Raises:
        AwsError: There is none.
    """
    if not call.params.get("VpcId") and moto_state.ec2(call.region).get_default_vpc() is None:
        raise AwsError("VPCIdNotSpecified", "No default VPC for this user")


def check_attachment(call: Call) -> None:
    """Refuse a volume to an instance that doesn't run yet, or no longer. fact: aws-attach-needs-running.

    Raises:
        AwsError: It doesn't.
    """
    instance_id = call.params.get("InstanceId", "")
    try:
        _, instance = moto_state.find_instance(instance_id)
    except LookupError:
        return
    if instance.state in {"pending", *moto_state.GONE}:
        raise AwsError("IncorrectState", f"Instance '{instance_id}' is not 'running'.")


def _check_user_data(call: Call) -> None:
    try:
        size = len(b64decode(call.params.get("UserData", "")))
    except binascii.Error as err:
        raise AwsError("InvalidParameterValue", "Invalid BASE64 encoding of user data.") from err
    if size > USER_DATA_LIMIT:
        raise AwsError("InvalidParameterValue", f"User data is limited to {USER_DATA_LIMIT} bytes")


def _check_offered(instance_type: str, region: str, zone: str | None) -> None:
    if instance_type not in INSTANCE_TYPES:
        raise AwsError("InvalidParameterValue", f"Invalid value '{instance_type}' for InstanceType.")
    offered = moto_state.zones_of(instance_type, region)
    if not offered:
        raise AwsError("Unsupported", "The requested configuration is currently not supported.")
    if zone and zone not in offered:
        raise AwsError(
            "Unsupported",
            f"Your requested instance type ({instance_type}) is not supported in your requested Availability Zone "
            f"({zone}). Please retry your request by not specifying an Availability Zone or choosing "
            f"{', '.join(offered)}.",
        )


def _check_interfaces(call: Call) -> None:
    """Refuse a public address for one of several interfaces. fact: aws-one-public-interface."""
    several = any(key.startswith("NetworkInterface.2.") for key in call.params)
    if several and any(key.endswith(".AssociatePublicIpAddress") for key in call.params):
        raise AwsError(
            "InvalidParameterCombination",
            "The associatePublicIPAddress parameter cannot be specified when launching with multiple network "
            "interfaces.",
        )


def _check_groups(call: Call) -> None:
    """Moto makes up a group that an interface names and that doesn't exist."""
    named = [
        group
        for key, group in call.params.items()
        if key.startswith("NetworkInterface.") and ".SecurityGroupId." in key
    ]
    for group in named:
        if moto_state.ec2(call.region).get_security_group_from_id(group) is None:
            raise AwsError("InvalidGroup.NotFound", f"The security group '{group}' does not exist")


def _check_network(call: Call) -> None:
    """Moto takes a group and a subnet of different networks, and a zone that isn't the subnet's.

    fact: aws-one-network
    """
    subnet_id = call.params.get("NetworkInterface.1.SubnetId")
    if not subnet_id:
        return
    backend = moto_state.ec2(call.region)
    try:
        subnet = backend.get_subnet(subnet_id)
    except InvalidSubnetIdError as err:
        raise AwsError("InvalidSubnetID.NotFound", f"The subnet ID '{subnet_id}' does not exist") from err
    for key, group_id in call.params.items():
        group = backend.get_security_group_from_id(group_id) if ".SecurityGroupId." in key else None
        if group is not None and group.vpc_id != subnet.vpc_id:
            raise AwsError(
                "InvalidParameter",
                f"Security group {group_id} and subnet {subnet_id} belong to different networks.",
            )


def _check_bid(call: Call, spot: SpotMarket, instance_type: str, zone: str) -> None:
    bid = call.params.get("InstanceMarketOptions.SpotOptions.MaxPrice")
    price = spot.usd_per_hour(instance_type, zone)
    if bid and Decimal(bid) < price:
        raise AwsError(
            "SpotMaxPriceTooLow",
            f"Your Spot request price of {bid} is lower than the minimum required Spot request fulfillment price of "
            f"{price}.",
        )
