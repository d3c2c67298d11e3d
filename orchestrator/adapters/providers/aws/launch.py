"""One RunInstances with everything inline, and how to be sure of its outcome.

A request carries an idempotency token: sent again after a dropped answer, it returns the instance that the first one
made. What stays unclear even then is for the caller to look up by tag.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError, ConnectTimeoutError, HTTPClientError
from botocore.parsers import ResponseParserError

from orchestrator.adapters.aws_sdk import code_of, message_of
from orchestrator.adapters.patience import ask_again
from orchestrator.adapters.providers.aws.refusals import Reaction, refusal_of
from orchestrator.adapters.providers.aws.tags import tag_specifications
from orchestrator.adapters.providers.aws.zones import as_request

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_ec2.type_defs import InstanceTypeDef, RunInstancesRequestTypeDef

    from orchestrator.core.disk import Disk
    from orchestrator.core.machine import MachineOrder
    from orchestrator.core.ports import Clock

_PATIENCE = timedelta(seconds=60)
_BROKEN = frozenset({"InternalError", "InternalFailure", "ServerInternal", "ServiceUnavailable", "Unavailable"})
_MISMATCH = "IdempotentParameterMismatch"
_BURSTABLE = re.compile(r"t[2-9]")


class UnclearOutcomeError(Exception):
    """Nobody answered whether the instance was made. Internal: the provider settles it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchParts:
    """What a launch needs besides the order.

    Attributes:
        device: the image's name for the root disk, such as `/dev/sda1`.
        disk: the root disk.
        group_id: of the security group.
        profile: the instance profile's name.
        subnet_id: of the user's own; empty for the zone's default one.
        token: see the module's docstring.
    """

    image_id: str
    device: str
    disk: Disk
    group_id: str
    profile: str
    user_data: bytes
    tags: Mapping[str, str]
    token: str
    subnet_id: str = ""


def render_request(order: MachineOrder, parts: LaunchParts) -> RunInstancesRequestTypeDef:
    """Write the request: closed, encrypted, tagged at birth, and ended for good by a power-off."""
    kinds = ("instance", "volume", "network-interface", *(("spot-instances-request",) if order.spot else ()))
    request: RunInstancesRequestTypeDef = {
        "MinCount": 1,
        "MaxCount": 1,
        "ClientToken": parts.token,
        "ImageId": parts.image_id,
        "InstanceType": order.instance_type,  # type: ignore[typeddict-item]
        "UserData": parts.user_data,  # type: ignore[typeddict-item]
        # A subnet may be set not to give addresses: said here, the machine has one all the same.
        "NetworkInterfaces": [
            {
                "DeviceIndex": 0,
                "AssociatePublicIpAddress": not order.site.is_private,
                "Groups": [parts.group_id],
                "DeleteOnTermination": True,
                **({"SubnetId": parts.subnet_id} if parts.subnet_id else {}),
            }
        ],
        "IamInstanceProfile": {"Name": parts.profile},
        "InstanceInitiatedShutdownBehavior": "terminate",
        "MetadataOptions": {"HttpEndpoint": "enabled", "HttpTokens": "required", "HttpPutResponseHopLimit": 1},
        "BlockDeviceMappings": [
            {
                "DeviceName": parts.device,
                "Ebs": {
                    "VolumeType": "gp3",
                    "VolumeSize": parts.disk.size_gib,
                    "Iops": parts.disk.iops,
                    "Throughput": parts.disk.mibps,
                    "Encrypted": True,
                    "DeleteOnTermination": True,
                },
            }
        ],
        "TagSpecifications": tag_specifications(parts.tags, *kinds),
    }
    if order.zone and not parts.subnet_id:
        request["Placement"] = as_request(order.zone)  # type: ignore[typeddict-item]  # one of its members
    if _BURSTABLE.match(order.instance_type):
        # "unlimited", the default from t3 on, bills more than the price beyond the baseline: no worst case would hold.
        request["CreditSpecification"] = {"CpuCredits": "standard"}
    if order.spot:
        request["InstanceMarketOptions"] = {
            "MarketType": "spot",
            "SpotOptions": {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"},
        }
        if order.max_usd_per_hour is not None:
            request["InstanceMarketOptions"]["SpotOptions"]["MaxPrice"] = str(order.max_usd_per_hour)
    return request


def launch(ec2: EC2Client, request: RunInstancesRequestTypeDef, clock: Clock, *, is_new: bool) -> InstanceTypeDef:
    """Ask for the instance, again where that is worth it.

    Args:
        ec2: a client that sends each request once.
        request: what is asked for.
        clock: lets time pass.
        is_new: the instance profile or the group was made just now: it may take a while until EC2 knows them.

    Raises:
        ClientError, BotoCoreError: a clear refusal; nothing was made.
        UnclearOutcomeError: something may have been made.
    """
    unclear = False

    def ask() -> InstanceTypeDef:
        nonlocal unclear
        try:
            return ec2.run_instances(**request)["Instances"][0]
        except (ClientError, BotoCoreError, ResponseParserError) as err:
            # A clear refusal of the same token says that no earlier request has made anything; throttling doesn't.
            unclear = _may_have_worked(err) or (unclear and _is_for_later(err))
            raise

    def is_worth_it(err: BaseException) -> bool:
        if is_unknown_yet(err):
            return is_new
        return _is_for_later(err) or _may_have_worked(err)

    try:
        return ask_again(clock, _PATIENCE, is_worth_it)(ask)
    except (ClientError, BotoCoreError, ResponseParserError) as err:
        if unclear or _is(err, {_MISMATCH}):
            raise UnclearOutcomeError(" ".join(str(err).split())) from err
        raise


def is_unknown_yet(err: BaseException) -> bool:
    """Tell whether EC2 doesn't know the instance profile or the group: too new for it, or removed by somebody."""
    profile = _is(err, {"InvalidParameterValue"}) and "iaminstanceprofile" in _message(err)
    return profile or _is(err, {"InvalidGroup.NotFound", "InvalidSecurityGroupID.NotFound"})


def _is_for_later(err: BaseException) -> bool:
    return isinstance(err, ClientError) and refusal_of(err).reaction is Reaction.RETRY


def _may_have_worked(err: BaseException) -> bool:
    """Tell whether the request may have had its effect although it failed."""
    if isinstance(err, HTTPClientError):
        return not isinstance(err, ConnectTimeoutError)
    return isinstance(err, ResponseParserError) or _is(err, _BROKEN)


def _is(err: BaseException, codes: frozenset[str] | set[str]) -> bool:
    return isinstance(err, ClientError) and code_of(err) in codes


def _message(err: BaseException) -> str:
    return message_of(err).lower().replace(" ", "") if isinstance(err, ClientError) else ""
