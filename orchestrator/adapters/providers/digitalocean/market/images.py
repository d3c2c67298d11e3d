"""Finds a droplet's image: ROCm or CUDA by its GPU, or the one that the job names."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.core.errors import BadRequestError

if TYPE_CHECKING:
    from orchestrator.adapters.providers.digitalocean.api import Api, Json
    from orchestrator.adapters.providers.digitalocean.market.sizes import Size

ROCM = "rocm"
ROCM_WITH_TORCH = "rocm-torch"
"""The names under which a job's `image_id` asks for one of the site's own ROCm images."""

_PLAIN = "ubuntu-24-04-x64"
_ROCM_BASE = "gpu-amd-base"
_CUDA_BASE = "gpu-h100x1-base"
_CUDA_BASE_NVLINK = "gpu-h100x8-base"
"""DigitalOcean's "AI/ML ready" images: those for eight GPUs have NVLink's fabric manager."""
_TORCH = re.compile(r"pytorch.*rocm|rocm.*pytorch")
_ROCM = re.compile(r"(?:[a-z]+-)?rocm-?[\d-]+(?:software)?")
"""Slugs of ROCm images without frameworks at the AMD Developer Cloud: rocm-7-2-4, amddeveloperclou-rocm724."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """An image.

    Attributes:
        id: for the request: a slug, or the number of a snapshot.
        min_disk_gib: the smallest disk of a droplet with this image.
        regions: where it can be used; empty if the API doesn't say.
    """

    id: str | int
    min_disk_gib: int
    regions: tuple[str, ...] = ()


def find_image(api: Api, wanted: str | None, size: Size, region: str) -> Image:
    """Find the image for a size in a region.

    Args:
        api: the site's API.
        wanted: `rocm`, `rocm-torch`, a slug, or a snapshot's number or name; None chooses by the GPU.
        size: of the droplet.
        region: of the droplet.

    Raises:
        BadRequestError: there is no such image, or the droplet can't use it.
        ApiError: the API refuses, or doesn't answer.
    """
    name = default_image(size) if wanted is None else wanted
    image = _find(api, name)
    if image is None:
        raise BadRequestError(
            f"{api.site.name} has no image {name!r}",
            why="it is neither a public image's slug nor the number or name of a snapshot of this account",
            fix=f"name one under image_id, such as {_PLAIN}, {ROCM} or {ROCM_WITH_TORCH}, or leave it out",
        )
    _refuse_unsuitable(image, size, region)
    return image


def default_image(size: Size) -> str:
    """Return the slug of the image for a size's GPU; plain Ubuntu without a GPU."""
    if not size.gpus:
        return _PLAIN
    if size.gpu.startswith("mi"):
        return _ROCM_BASE
    return _CUDA_BASE if size.gpus == 1 else _CUDA_BASE_NVLINK


def _find(api: Api, name: str) -> Image | None:
    if name == ROCM_WITH_TORCH:
        return _newest(api, _TORCH.search)
    if name in (ROCM, _ROCM_BASE):
        return _look_up(api, _ROCM_BASE) or _newest(api, _ROCM.fullmatch)
    return _look_up(api, name)


def _look_up(api: Api, name: str) -> Image | None:
    what = f"image {name} can't be looked up"
    body = api.read(what, api.client.images.get, name)
    if body is not None:
        return _parse(body["image"])
    own = api.pages(what, api.client.images.list, "images", private=True)
    named = [fields for fields in own if fields["name"] == name]
    return _parse(max(named, key=lambda fields: str(fields["created_at"]))) if named else None


def _newest(api: Api, matches: Callable[[str], object]) -> Image | None:
    """Find the newest matching one-click image: the slugs contain versions, and change."""
    listed = api.pages("the images can't be listed", api.client.images.list, "images", type="application")
    found = [fields for fields in listed if matches(str(fields.get("slug") or "").lower())]
    return _parse(max(found, key=lambda fields: _versions(fields["slug"]))) if found else None


def _versions(slug: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", slug)]


def _parse(fields: Json) -> Image:
    return Image(
        id=fields.get("slug") or fields["id"],
        min_disk_gib=fields.get("min_disk_size") or 0,
        regions=tuple(fields.get("regions") or ()),
    )


def _refuse_unsuitable(image: Image, size: Size, region: str) -> None:
    if image.regions and region not in image.regions:
        raise BadRequestError(
            f"image {image.id} can't be used in {region}",
            why=f"it is in {', '.join(image.regions)}",
            fix="choose one of those with --region, or transfer the image",
        )
    if image.min_disk_gib > size.disk_gib:
        raise BadRequestError(
            f"image {image.id} doesn't fit on a {size.slug}",
            why=f"it needs {image.min_disk_gib} GiB of disk, and the size has {size.disk_gib}",
            fix="choose another image, or a larger size",
        )
