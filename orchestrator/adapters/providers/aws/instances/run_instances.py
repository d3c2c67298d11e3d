"""Renders RunInstances: an instance with an encrypted disk, a closed security group, and its tags from the start."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from orchestrator.adapters.providers.aws.access.zones import as_request
from orchestrator.adapters.providers.aws.tags import machine_tags, tag_specifications

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import (
        BlockDeviceMappingTypeDef,
        InstanceMarketOptionsRequestTypeDef,
        RunInstancesRequestTypeDef,
    )

    from orchestrator.adapters.cloud.model import Draft
    from orchestrator.adapters.providers.aws.instances.choice import Choice, RunParts
    from orchestrator.core.machine import MachineOrder

_BURSTABLE = re.compile(r"t[2-9]")


def render_request(draft: Draft[Choice, RunParts]) -> RunInstancesRequestTypeDef:
    """Render the request; powering the machine off terminates it."""
    order, choice, parts = draft.order, draft.chosen.native, draft.ready.native
    kinds = ("instance", "volume", "network-interface", *(("spot-instances-request",) if order.spot else ()))
    request: RunInstancesRequestTypeDef = {
        "MinCount": 1,
        "MaxCount": 1,
        "ClientToken": draft.token,
        "ImageId": choice.image.id,
        "InstanceType": order.instance_type,  # type: ignore[typeddict-item]
        "UserData": draft.user_data,  # type: ignore[typeddict-item]
        # Explicit, since a subnet's default may be to give no public address.
        "NetworkInterfaces": [
            {
                "DeviceIndex": 0,
                "AssociatePublicIpAddress": not order.site.is_private,
                "Groups": [parts.group_id],
                "DeleteOnTermination": True,
                **({"SubnetId": choice.subnet_id} if choice.subnet_id else {}),
                # One card only: with several interfaces, none gets a public address. fact: aws-one-public-interface
                **({"InterfaceType": "efa"} if parts.efa else {}),
            }
        ],
        "IamInstanceProfile": {"Name": parts.profile},
        "InstanceInitiatedShutdownBehavior": "terminate",
        "MetadataOptions": {"HttpEndpoint": "enabled", "HttpTokens": "required", "HttpPutResponseHopLimit": 1},
        "BlockDeviceMappings": [_root_disk(choice)],
        "TagSpecifications": tag_specifications(machine_tags(draft.marks), *kinds),
    }
    place = {"GroupName": parts.placement} if parts.placement else {}
    if order.zone and not choice.subnet_id:
        place |= as_request(order.zone)  # type: ignore[arg-type]  # one of its members
    if place:
        request["Placement"] = place  # type: ignore[typeddict-item]
    if _BURSTABLE.match(order.instance_type):
        # "unlimited", the default from t3 on, bills more than the price beyond the baseline: no worst case would hold.
        request["CreditSpecification"] = {"CpuCredits": "standard"}
    if order.spot:
        request["InstanceMarketOptions"] = _on_spot(order)
    return request


def _root_disk(choice: Choice) -> BlockDeviceMappingTypeDef:
    return {
        "DeviceName": choice.image.root_device,
        "Ebs": {
            "VolumeType": "gp3",
            "VolumeSize": choice.disk.size_gib,
            "Iops": choice.disk.iops,
            "Throughput": choice.disk.mibps,
            "Encrypted": True,
            "DeleteOnTermination": True,
        },
    }


def _on_spot(order: MachineOrder) -> InstanceMarketOptionsRequestTypeDef:
    limit = {} if order.max_usd_per_hour is None else {"MaxPrice": str(order.max_usd_per_hour)}
    return {
        "MarketType": "spot",
        "SpotOptions": {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate", **limit},  # type: ignore[typeddict-item]
    }
