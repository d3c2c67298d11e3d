"""The differentiable renderer against a loop in float64, and its gradients against differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from tests.recipes.gaussian import reference
from trainer.recipes.gaussian.camera import project
from trainer.recipes.gaussian.decoder import Gaussians
from trainer.recipes.gaussian.render import render
from trainer.recipes.gaussian.tiles import list_chunks


def as_batch(*clouds: reference.Cloud, dtype: torch.dtype = torch.float64) -> Gaussians:
    return Gaussians(*(torch.tensor(np.stack(parts), dtype=dtype) for parts in zip(*clouds, strict=True)))


@pytest.mark.parametrize(("pixels", "count"), [(16, 40), (21, 25), (72, 12)])
def test_pictures_and_depths_are_those_of_the_loop(pixels: int, count: int) -> None:
    """Also where the picture is no whole number of tiles, and Gaussians have the same depth."""
    clouds = [reference.draw_cloud(np.random.default_rng(seed), count) for seed in range(2)]
    images, depths = render(as_batch(*clouds), pixels)
    for cloud, image, depth in zip(clouds, images, depths, strict=True):
        expected_image, expected_depth = reference.render(cloud, pixels)
        assert expected_image.max() > 0.3
        np.testing.assert_allclose(image.numpy(), expected_image, atol=1e-7)
        np.testing.assert_allclose(depth.numpy(), expected_depth, atol=1e-6)


def test_float32_is_within_rounding() -> None:
    """Training computes in float32."""
    cloud = reference.draw_cloud(np.random.default_rng(3), 60)
    image, _ = render(as_batch(cloud, dtype=torch.float32), 32)
    np.testing.assert_allclose(image[0].numpy(), reference.render(cloud, 32)[0], atol=2e-5)


@pytest.mark.parametrize("scales", [(2.0, 1e-5, 1e-5), (2.0, 1e-6, 2.0), (2.0, 2.0, 1e-6), (1e-6, 1e-6, 1e-6)])
def test_thin_gaussians_have_float64s_shape_and_finite_gradients(scales: tuple[float, float, float]) -> None:
    """The decoder may make scales of 1e-6 to 2: needles and discs, in any direction, also seen edge-on."""
    cloud = reference.draw_cloud(np.random.default_rng(5), 60)._replace(scales=np.tile(scales, (60, 1)))
    exact = project(as_batch(cloud), 128).conics
    gaussians = Gaussians(*(part.requires_grad_() for part in as_batch(cloud, dtype=torch.float32)))
    splats = project(gaussians, 128)
    difference = (splats.conics.detach().double() - exact).norm(dim=-1) / exact.norm(dim=-1)
    assert float(difference.max()) < 1e-3
    image, depth = render(gaussians, 128)
    torch.autograd.backward(image.square().sum() + depth.sum())
    assert torch.isfinite(image).all()
    assert all(torch.isfinite(part.grad).all() for part in gaussians if part.grad is not None)


def test_gaussian_ends_at_64_pixels() -> None:
    """A radius of three deviations is cut there."""
    cloud = reference.draw_cloud(np.random.default_rng(0), 1)
    wide = cloud._replace(positions=np.array([[0, 0, -1.0]]), scales=np.full((1, 3), 1.0), opacities=np.array([0.9]))
    image, _ = render(as_batch(wide), 160)
    reached = torch.nonzero(image[0, 0, 80] > 0).flatten()
    assert reached.tolist() == list(range(80 - 64, 80 + 64 + 1))
    np.testing.assert_allclose(image[0].numpy(), reference.render(wide, 160)[0], atol=1e-7)


def test_what_is_behind_the_camera_or_beside_the_picture_is_black() -> None:
    """Their gradients are numbers all the same."""
    cloud = reference.draw_cloud(np.random.default_rng(1), 3, largest=0.05)
    unseen = cloud._replace(positions=np.array([[0, 0, 1.0], [0, 0, 0], [9, 0, -1.0]]))
    gaussians = Gaussians(*(part.requires_grad_() for part in as_batch(unseen)))
    image, depth = render(gaussians, 16)
    assert not image.any()
    torch.autograd.backward(image.sum() + depth.sum())
    assert all(torch.isfinite(part.grad).all() for part in gaussians if part.grad is not None)


@pytest.mark.parametrize("seed", [0, 1])
def test_gradients_are_those_of_differences(seed: int) -> None:
    """With regard to every value of every Gaussian: no two at the same depth, where the order would jump."""
    cloud = reference.draw_cloud(np.random.default_rng(seed), 4)
    cloud.positions[:, 2] -= 0.1 * np.arange(4)
    cloud.positions[:, :2] *= 0.3  # they overlap
    cloud = cloud._replace(opacities=cloud.opacities * 0.9)
    parts = tuple(part.requires_grad_() for part in as_batch(cloud))
    assert torch.autograd.gradcheck(lambda *each: render(Gaussians(*each), 9, most=500), parts, atol=1e-5, rtol=1e-4)


def test_opaque_centre_has_no_gradient_by_its_opacity() -> None:
    """Where alpha is held at 0.99, a higher opacity changes nothing."""
    cloud = reference.draw_cloud(np.random.default_rng(0), 1)
    cloud = cloud._replace(positions=np.array([[0, 0, -2.0]]), scales=np.full((1, 3), 5.0), opacities=np.array([1.0]))
    gaussians = as_batch(cloud)
    gaussians.opacities.requires_grad_()
    image, _ = render(gaussians, 16)
    torch.autograd.backward(image[..., 8, 8].sum())
    assert gaussians.opacities.grad is not None
    assert not gaussians.opacities.grad.any()


class FloatOperations(TorchDispatchMode):
    """Collects the names of the operations whose first argument has floating point."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if args and isinstance(args[0], torch.Tensor) and args[0].is_floating_point():
            self.names.add(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


def test_deterministic_gradients_are_those_of_the_fast_way_and_need_nothing_that_a_gpu_refuses() -> None:
    """With compute.deterministic: torch has no deterministic running sum of floats on a GPU."""
    clouds = [reference.draw_cloud(np.random.default_rng(seed), 50) for seed in range(2)]
    weights = torch.rand(2, 4, 40, 40, dtype=torch.float64)

    def differentiate() -> list[torch.Tensor]:
        parts = [part.requires_grad_() for part in as_batch(*clouds)]
        image, depth = render(Gaussians(*parts), 40)
        return list(torch.autograd.grad((torch.cat([image, depth[:, None]], 1) * weights).sum(), parts))

    fast = differentiate()
    torch.use_deterministic_algorithms(mode=True)
    try:
        with FloatOperations() as operations:
            deterministic = differentiate()
    finally:
        torch.use_deterministic_algorithms(mode=False)
    assert {"cumprod", "index_add_"} <= operations.names
    assert not {"cumsum", "put_", "kthvalue", "median", "histc"} & operations.names
    for one, other in zip(deterministic, fast, strict=True):
        torch.testing.assert_close(one, other)


def test_result_does_not_depend_on_the_size_of_chunks() -> None:
    """Only memory does."""
    gaussians = as_batch(*(reference.draw_cloud(np.random.default_rng(seed), 50) for seed in range(3)))
    whole, _ = render(gaussians, 40)
    for most in (1, 5000):
        torch.testing.assert_close(render(gaussians, 40, most=most)[0], whole)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 3), st.integers(1, 30), st.integers(1, 5), st.integers(1, 3000))
def test_each_tile_has_the_gaussians_that_reach_it_in_order(
    seed: int, batch: int, count: int, side: int, most: int
) -> None:
    """A chunk stays within its size, unless it is one tile."""
    rng, tile = np.random.default_rng(seed), 8
    first = rng.integers(-20, side * tile + 10, (batch, count, 2))
    last = first + rng.integers(0, 30, (batch, count, 2))
    boxes = torch.tensor(np.stack([first[..., 0], last[..., 0], first[..., 1], last[..., 1]], -1)).double()
    found: dict[int, list[int]] = {}
    for chunk in list_chunks(boxes, side=side, tile=tile, most=most):
        rows, length = chunk.members.shape
        assert rows == 1 or rows * length * tile * tile <= most
        for number, corner, members in zip(chunk.tiles, chunk.corners, chunk.members, strict=True):
            inside = int(number) % (side * side)
            assert corner.tolist() == [inside % side * tile, inside // side * tile]
            found[int(number)] = [int(member) for member in members if member < batch * count]
    for image in range(batch):
        for row in range(side):
            for column in range(side):
                expected = [
                    image * count + n
                    for n in range(count)
                    if first[image, n, 0] < (column + 1) * tile
                    and last[image, n, 0] >= column * tile
                    and first[image, n, 1] < (row + 1) * tile
                    and last[image, n, 1] >= row * tile
                ]
                assert found.get((image * side + row) * side + column, []) == expected
