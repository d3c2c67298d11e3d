"""What tests of the box ask of EC2."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.cloudbox.aws.box import Box

DEEP_LEARNING = "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id"
DEBIAN = "/aws/service/debian/release/12/latest/amd64"
SPOT: dict[str, Any] = {
    "InstanceMarketOptions": {"MarketType": "spot", "SpotOptions": {"SpotInstanceType": "one-time"}}
}


def image(box: Box, region: str = "us-east-1", parameter: str = DEEP_LEARNING) -> str:
    """Look an image up as kedge does."""
    return str(box.client("ssm", region).get_parameter(Name=parameter)["Parameter"]["Value"])


def launch(box: Box, region: str = "us-east-1", **more: Any) -> str:
    """Launch one machine and return its id."""
    answer = box.client("ec2", region).run_instances(**order(box, region, **more))
    return str(answer["Instances"][0]["InstanceId"])


def order(box: Box, region: str = "us-east-1", **more: Any) -> dict[str, Any]:
    """Return a plain launch of a g4dn.xlarge."""
    disk = {"VolumeSize": 50, "VolumeType": "gp3", "Encrypted": True, "DeleteOnTermination": True}
    plain = {
        "ImageId": image(box, region),
        "InstanceType": "g4dn.xlarge",
        "MinCount": 1,
        "MaxCount": 1,
        "BlockDeviceMappings": [{"DeviceName": "/dev/sda1", "Ebs": disk}],
    }
    return {**plain, **more}


def instances(box: Box, region: str = "us-east-1") -> list[dict[str, Any]]:
    """Describe all instances."""
    reservations = box.client("ec2", region).describe_instances()["Reservations"]
    return [instance for reservation in reservations for instance in reservation["Instances"]]


def refusal(act: Any, **arguments: Any) -> ClientError:
    """Call what must be refused, and return how."""
    with pytest.raises(ClientError) as caught:
        act(**arguments)
    return caught.value


def code_of(error: ClientError) -> str:
    """Return an error's code."""
    return str(error.response["Error"]["Code"])
