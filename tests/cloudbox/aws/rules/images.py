"""Public images: what AWS's public parameters name, as images that can be launched."""

from __future__ import annotations

import hashlib
import threading
from dataclasses import dataclass

from moto.core.utils import utcnow
from moto.ec2.models.amis import Ami
from moto.ssm.models import Parameter, ssm_backends

from tests.cloudbox.aws.wire import moto_state


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicImage:
    """One image; `base` is what its machines are made of in the box."""

    parameter: str
    name: str
    owner: str
    root_device: str = "/dev/sda1"
    architecture: str = "x86_64"
    base: str = "host"


_DEEP_LEARNING = "898082745236"
_CANONICAL = "099720109477"
_DEBIAN = "136693071363"
_AMAZON = "137112412989"

PUBLIC_IMAGES = (
    *(
        PublicImage(
            parameter=f"/aws/service/deeplearning/ami/x86_64/{kind}/latest/ami-id",
            name=f"Deep Learning {kind} 20261101",
            owner=_DEEP_LEARNING,
        )
        for kind in (
            "base-oss-nvidia-driver-gpu-ubuntu-22.04",
            "base-oss-nvidia-driver-gpu-ubuntu-24.04",
            "oss-nvidia-driver-gpu-pytorch-2.7-ubuntu-22.04",
            *(f"oss-nvidia-driver-gpu-pytorch-2.{minor}-ubuntu-24.04" for minor in (8, 9, 10, 11, 12)),
        )
    ),
    *(
        PublicImage(
            parameter=f"/aws/service/canonical/ubuntu/server/{version}/stable/current/amd64/hvm/ebs-{disk}/ami-id",
            name=f"ubuntu/images/hvm-ssd-{disk}/ubuntu-{version}-amd64-server-20261101",
            owner=_CANONICAL,
        )
        for version in ("22.04", "24.04")
        for disk in ("gp2", "gp3")
    ),
    PublicImage(
        parameter="/aws/service/debian/release/12/latest/amd64",
        name="debian-12-amd64-20261101",
        owner=_DEBIAN,
        root_device="/dev/xvda",
        base="bare",
    ),
    PublicImage(
        parameter="/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64",
        name="al2023-ami-2023.9-kernel-6.1-x86_64",
        owner=_AMAZON,
        root_device="/dev/xvda",
    ),
)
"""Amazon's deep learning images, Ubuntu, Debian (bare: none of our dependencies) and Amazon Linux."""

_lock = threading.Lock()
_withdrawn: set[tuple[str, str]] = set()
"""Regions, and parts of parameters' names that don't exist there."""


def image_id(image: PublicImage, region: str) -> str:
    """Return an image's id, the same in every box."""
    return f"ami-{hashlib.sha256(f'{region} {image.name}'.encode()).hexdigest()[:17]}"


def base_of(ami: str, region: str) -> str:
    """Return what machines of an image are made of: host or bare."""
    return next((image.base for image in PUBLIC_IMAGES if image_id(image, region) == ami), "host")


def publish(region: str) -> None:
    """Make the public images and their parameters exist in a region."""
    with _lock:
        ec2, ssm = moto_state.ec2(region), ssm_backends[moto_state.ACCOUNT][region]
        for image in PUBLIC_IMAGES:
            ami = image_id(image, region)
            if any(each == region and part in image.parameter for each, part in _withdrawn):
                ec2.amis.pop(ami, None)
                ssm._parameters.pop(image.parameter, None)
            elif ami not in ec2.amis:
                ec2.amis[ami] = _ami(image, region)
                ssm._parameters[image.parameter] = [_parameter(image.parameter, ami)]


def withdraw(region: str, part: str) -> None:
    """Have a region lack the images whose parameters hold a text.

    fact: aws-dlami-parameters
    """
    with _lock:
        _withdrawn.add((region, part))


def bring_back() -> None:
    """Have every region publish every image."""
    with _lock:
        _withdrawn.clear()


def _ami(image: PublicImage, region: str) -> Ami:
    return Ami(
        moto_state.ec2(region),
        image_id(image, region),
        name=image.name,
        description=image.name,
        owner_id=image.owner,
        owner_alias="amazon",
        public=True,
        virtualization_type="hvm",
        architecture=image.architecture,
        hypervisor="xen",
        root_device_type="ebs",
        root_device_name=image.root_device,
        region_name=f"{region}a",
        image_location=f"{image.owner}/{image.name}",
    )


def _parameter(name: str, value: str) -> Parameter:
    return Parameter(  # type: ignore[abstract]
        account_id=moto_state.ACCOUNT,
        name=name,
        value=value,
        parameter_type="String",
        description=None,
        allowed_pattern=None,
        keyid=None,
        last_modified_date=utcnow(),
        version=1,
        data_type="aws:ec2:image",
    )
