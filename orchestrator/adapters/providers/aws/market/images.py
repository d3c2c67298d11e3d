"""Finds a machine's image: the newest public one for its GPU, or the one that the job names.

Public parameters that AWS and Canonical keep: https://docs.aws.amazon.com/dlami/latest/devguide/find-dlami-id.html and
https://documentation.ubuntu.com/aws/aws-how-to/instances/find-ubuntu-images/ (November 2026).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Protocol

from botocore.exceptions import BotoCoreError, ClientError

from orchestrator.adapters.aws_sdk import code_of, translate
from orchestrator.adapters.providers.aws.access.closed import NotInRegionError
from orchestrator.core.errors import BadRequestError

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_ssm import SSMClient

    from orchestrator.adapters.providers.aws.access.session import AwsSession
    from orchestrator.adapters.providers.aws.cache import Cache
    from orchestrator.core.offer import Accelerators

_DEEP_LEARNING = "/aws/service/deeplearning/ami/x86_64"
_GPU_IMAGES = (
    *(f"oss-nvidia-driver-gpu-pytorch-2.{minor}-ubuntu-24.04" for minor in (12, 11, 10, 9, 8)),
    "oss-nvidia-driver-gpu-pytorch-2.7-ubuntu-22.04",
    "base-oss-nvidia-driver-gpu-ubuntu-24.04",
    "base-oss-nvidia-driver-gpu-ubuntu-22.04",
)
# The newest first: AWS patches an image for a year after its PyTorch release, so that older ones exist unpatched.
# Images without torch come last: the machine then makes an environment with torch.
# fact: aws-dlami-parameters
_GPU_PARAMETERS = tuple(f"{_DEEP_LEARNING}/{name}/latest/ami-id" for name in _GPU_IMAGES)
_PLAIN_PARAMETERS = ("/aws/service/canonical/ubuntu/server/22.04/stable/current/amd64/hvm/ebs-gp2/ami-id",)

# NVIDIA's open kernel modules, which these images carry, don't drive Volta:
# https://developer.nvidia.com/blog/nvidia-transitions-fully-towards-open-source-gpu-kernel-modules/ (2024-07-17).
_NEEDS_OWN_IMAGE = frozenset({"v100", "v100-32gb"})

_BY_PARAMETER = "ssm:"


class HasImage(Protocol):
    """Something that may name an image: a job's resources, or a machine's order."""

    @property
    def image_id(self) -> str | None:
        """`ami-...`, `ssm:/path/of/a/parameter`, or None for the newest public image."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """An image to boot from.

    Attributes:
        root_device: the device name for resizing its root disk, `/dev/sda1` or `/dev/xvda`.
        min_disk_gib: the size of its snapshot, which is the smallest root disk.
    """

    id: str
    name: str
    root_device: str
    min_disk_gib: int


def find_image(
    wanted: HasImage, session: AwsSession, region: str, gpu: Accelerators | None, *, cache: Cache | None = None
) -> Image:
    """Find the image for a machine, with two calls at most.

    Raises:
        NotInRegionError: the region has no such image.
        BadRequestError: no image fits the machine.
        KedgeError: AWS refuses, or doesn't answer.
    """
    parameters = _parameters(wanted.image_id, gpu)
    ssm, ec2 = session.client("ssm", region), session.client("ec2", region)

    def ask() -> dict[str, str | int]:
        return asdict(_describe(ec2, _resolve(ssm, parameters, region), region))

    try:
        kept = cache.remember("images", f"{region} {' '.join(parameters)}", ask) if cache else ask()
    except (ClientError, BotoCoreError) as err:
        raise translate(err, f"the machine's image in {region} can't be looked up") from err
    return Image(**kept)


def _parameters(image_id: str | None, gpu: Accelerators | None) -> tuple[str, ...]:
    """Return an image's id, or the names of the SSM parameters that may contain it."""
    if image_id is not None:
        return (image_id.removeprefix(_BY_PARAMETER),)
    if gpu is None:
        return _PLAIN_PARAMETERS
    if gpu.name in _NEEDS_OWN_IMAGE:
        raise BadRequestError(
            f"no public image drives a {gpu.name}",
            why="AWS's deep learning images carry NVIDIA's open driver, which doesn't know that GPU",
            fix="name an image with the proprietary driver and Python >= 3.10 under image_id, or choose another --gpu",
        )
    return _GPU_PARAMETERS


def _resolve(ssm: SSMClient, parameters: tuple[str, ...], region: str) -> str:
    if parameters[0].startswith("ami-"):
        return parameters[0]
    # One request for all: SSM returns those that it has, in any order, and names the others.
    found = ssm.get_parameters(Names=list(parameters))["Parameters"]
    values = {each["Name"]: each["Value"] for each in found}
    for name in parameters:
        if name in values:
            return values[name]
    raise NotInRegionError(
        f"{region} has no image at {parameters[0]}",
        why="there is no such public parameter" + (", nor one of an older image" if len(parameters) > 1 else ""),
        fix="name an image of that region under image_id: ami-..., or ssm:/the/parameter",
    )


def _describe(ec2: EC2Client, image_id: str, region: str) -> Image:
    try:
        found = ec2.describe_images(ImageIds=[image_id])["Images"]
    except ClientError as err:
        if not code_of(err).startswith("InvalidAMIID"):
            raise
        found = []
    if not found:
        raise NotInRegionError(
            f"there is no image {image_id} in {region}",
            why="images belong to one region, and may be private or withdrawn",
            fix="name an image of that region under image_id, or leave it out for AWS's newest",
        )
    image = found[0]
    if image.get("Architecture", "x86_64") != "x86_64":
        raise BadRequestError(
            f"{image_id} is an image for {image['Architecture']}",
            why="the machines that kedge rents are x86_64",
            fix="name an x86_64 image under image_id",
        )
    disks = {disk.get("DeviceName"): disk.get("Ebs", {}) for disk in image.get("BlockDeviceMappings", [])}
    root = image.get("RootDeviceName", "/dev/sda1")
    return Image(
        id=image_id,
        name=image.get("Name", ""),
        root_device=root,
        min_disk_gib=disks.get(root, {}).get("VolumeSize", 8),
    )
