"""Which image a droplet boots."""

from __future__ import annotations

import pytest

from orchestrator.core.errors import BadRequestError
from tests.adapters.digitalocean.world import AMD_GPU, GPU, M1, PLAIN, DoWorld


def image_of(do: DoWorld, size: str, image_id: str | None = None) -> object:
    region = next(iter(do.api.cloud.account.sizes[size].regions))
    do.provider().create(do.order(instance_type=size, region=region, image_id=image_id))
    (call,) = do.api.calls.find("POST", "/v2/droplets")
    return call.body["image"]


@pytest.mark.parametrize(
    ("size", "image"),
    [
        (GPU, "gpu-amd-base"),
        ("gpu-mi300x8-1536gb", "gpu-amd-base"),
        ("gpu-h100x1-80gb", "gpu-h100x1-base"),
        ("gpu-l40sx1-48gb", "gpu-h100x1-base"),
        ("gpu-h100x8-640gb", "gpu-h100x8-base"),
        (PLAIN, "ubuntu-24-04-x64"),
    ],
)
def test_the_image_fits_the_gpu(do: DoWorld, size: str, image: str) -> None:
    """ROCm for AMD's GPUs and CUDA for NVIDIA's, with the NVLink manager for eight of them."""
    assert image_of(do, size) == image


def test_rocm_with_torch_is_the_newest_one_click_image(do: DoWorld) -> None:
    """Its slug contains versions, so kedge looks it up."""
    assert image_of(do, GPU, "rocm-torch") == "amddeveloperclou-pytorch280rocm700"


def test_rocm_without_torch_has_a_name_too(do: DoWorld) -> None:
    """For jobs that bring their own torch."""
    assert image_of(do, GPU, "rocm") == "gpu-amd-base"


def test_rocm_at_the_amd_developer_cloud_is_its_newest_image_with_rocm_only(amd: DoWorld) -> None:
    """DigitalOcean's base image does not exist there. Other images with ROCm in their name contain more software.

    fact: amd-devcloud-images
    """
    assert image_of(amd, AMD_GPU) == "rocm-7-2-4"
    amd.provider().destroy(M1)
    amd.api.calls.reset()
    assert image_of(amd, AMD_GPU, "rocm-torch") == "amddevelopercloud-pytorch2100rocm724"


def test_a_public_slug_is_taken_as_it_is(do: DoWorld) -> None:
    """Whatever the GPU is: the job's author decides."""
    assert image_of(do, GPU, "debian-12-x64") == "debian-12-x64"


def snapshot(do: DoWorld) -> str:
    """Create a droplet and a snapshot of it called `trained`; return the snapshot's id."""
    client = do.api.client()
    body = {"name": "x", "region": "tor1", "size": PLAIN, "image": "ubuntu-24-04-x64"}
    droplet = client.droplets.create(body)["droplet"]["id"]
    client.droplet_actions.post(droplet, {"type": "snapshot", "name": "trained"})
    do.api.advance(600)
    made = client.images.list(private=True)["images"][0]["id"]
    client.droplets.destroy(droplet)
    do.api.calls.reset()
    return str(made)


@pytest.mark.parametrize("by_name", [False, True])
def test_a_user_s_snapshot_is_selected_by_its_number_or_its_name(do: DoWorld, by_name: bool) -> None:
    """It exists in the region where it was taken."""
    made = snapshot(do)
    do.provider().create(do.order(instance_type=PLAIN, image_id="trained" if by_name else made))
    (call,) = do.api.calls.find("POST", "/v2/droplets")
    assert str(call.body["image"]) == made


def test_an_image_that_is_not_in_the_region_is_refused_before_anything_is_created(do: DoWorld) -> None:
    """The error names the regions that have it."""
    made = snapshot(do)
    with pytest.raises(BadRequestError, match="can't be used in nyc2") as caught:
        do.provider().create(do.order(region="nyc2", image_id=made))
    assert "tor1" in caught.value.why
    assert do.api.calls.find("POST") == []


def test_an_image_that_does_not_fit_is_refused(do: DoWorld) -> None:
    """The API would refuse it only after everything else is created."""
    with pytest.raises(BadRequestError, match="doesn't fit"):
        do.provider().create(do.order(instance_type="s-1vcpu-1gb", image_id="gpu-amd-base"))


def test_an_unknown_image_is_refused_by_name(do: DoWorld) -> None:
    """The fix says which images can be named."""
    with pytest.raises(BadRequestError, match="'arch-btw'") as caught:
        do.provider().create(do.order(image_id="arch-btw"))
    assert "rocm-torch" in caught.value.fix
