"""The decoder's size, names and formulas."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.spatial.transform import Rotation

from trainer.recipes.gaussian.decoder import GRID, GaussianDecoder
from trainer.recipes.gaussian.render import render
from trainer.recipes.gaussian.rotations import matrices_of_quaternions, quaternions_of_6d
from trainer.recipes.gaussian.settings import ModelSettings
from trainer.recipes.gaussian.workload import target


@pytest.mark.parametrize(("width", "per_patch", "parameters"), [(384, 4, 632_257), (384, 8, 640_513)])
def test_decoder_has_fresnels_parameters(width: int, per_patch: int, parameters: int) -> None:
    """At K = 4 and K = 8."""
    model = GaussianDecoder(width, per_patch=per_patch, dropout=0.1)
    assert sum(weight.numel() for weight in model.parameters()) == parameters


def test_names_of_weights_are_fresnels() -> None:
    """So that its checkpoints load without a table of names."""
    model = GaussianDecoder(384, per_patch=4, dropout=0)
    layers = [f"mlp.net.{number}.{kind}" for number in (0, 3, 6, 9, 12) for kind in ("weight", "bias")]
    assert sorted(model.state_dict()) == sorted(["depth_offset", *layers])


def test_gaussians_follow_the_formulas() -> None:
    """Of the raw values of the network, computed once more in NumPy."""
    torch.manual_seed(0)
    model = GaussianDecoder(6, per_patch=2, dropout=0).eval()
    features, depth = torch.randn(1, 6, GRID, GRID), torch.rand(1, 1, GRID, GRID)
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(3)
        gaussians = model(features, depth)
        raw = model.mlp(features.permute(0, 2, 3, 1)).double().numpy().reshape(GRID, GRID, 2, 16)
    line = np.linspace(-1, 1, GRID)
    x = line[None, :, None] + 0.25 * raw[..., 0]
    y = -line[:, None, None] + 0.25 * raw[..., 1]
    z = np.broadcast_to(-6 - 2 * depth[0, 0].double().numpy()[..., None], x.shape)
    expected = np.stack([x, y, z], -1).reshape(-1, 3)
    np.testing.assert_allclose(gaussians.positions[0].numpy(), expected, atol=1e-5)
    scales = np.clip(0.15 * np.logaddexp(0, raw[..., 3:6] + 1), 1e-6, 2)
    np.testing.assert_allclose(gaussians.scales[0].numpy(), scales.reshape(-1, 3), rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(
        gaussians.colours[0].numpy(), 1 / (1 + np.exp(-raw[..., 12:15])).reshape(-1, 3), rtol=1e-4
    )
    np.testing.assert_allclose(gaussians.opacities[0].numpy(), 1 / (1 + np.exp(-raw[..., 15])).reshape(-1), rtol=1e-4)


def test_depth_is_resized_to_the_patches() -> None:
    """A depth of 256 x 256 that grows to the right gives each column its own z."""
    model = GaussianDecoder(3, per_patch=1, dropout=0)
    depth = torch.linspace(0, 1, 256).expand(1, 1, 256, 256)
    z = model(torch.zeros(1, 3, GRID, GRID), depth).positions[0, :, 2].reshape(GRID, GRID)
    middles = (np.arange(GRID) + 0.5) / GRID * 256 - 0.5
    np.testing.assert_allclose(z[5].detach().numpy(), -2 - 2 * middles / 255, atol=1e-5)


def test_first_row_of_patches_is_at_the_top() -> None:
    """In fresnel, whose checkpoints need it so, it is at the bottom: y grows upwards there, too."""
    depth, features = torch.zeros(1, 1, 256, 256), torch.zeros(1, 3, GRID, GRID)
    upright = GaussianDecoder(3, per_patch=1, dropout=0)
    original = GaussianDecoder(3, per_patch=1, dropout=0, upright=False)
    original.load_state_dict(upright.state_dict())
    ours, theirs = (model(features, depth).positions[0, :, 1].reshape(GRID, GRID) for model in (upright, original))
    assert ours[0, 0] > 0.5 > -0.5 > ours[-1, 0]
    torch.testing.assert_close(ours.flip(0) - ours.mean(), theirs - theirs.mean())


@pytest.mark.parametrize(("near_in_front", "nearest"), [(True, 2.0), (False, 4.0)])
def test_near_things_hide_far_ones_if_asked(near_in_front: bool, nearest: float) -> None:
    """The left half has depth 1, which is near in the data, and is red; blue is far, and in front of it in fresnel.

    Either way the rendered depth rises and falls with the one that the loss compares it with.
    """
    settings = ModelSettings(near_in_front=near_in_front)
    model = GaussianDecoder(3, per_patch=1, dropout=0, near_in_front=settings.near_in_front)
    depth = (torch.arange(256) < 128).float().expand(1, 1, 256, 256)
    with torch.no_grad():
        gaussians = model(torch.zeros(1, 3, GRID, GRID), depth)
    is_near = (torch.arange(GRID) < GRID // 2).repeat(GRID)[None, :, None]
    assert -gaussians.positions[is_near.expand_as(gaussians.positions)].reshape(-1, 3)[:, 2].max() == nearest
    colours = torch.where(is_near, torch.tensor([1.0, 0, 0]), torch.tensor([0, 0, 1.0]))
    image, rendered = render(gaussians._replace(colours=colours, opacities=torch.full((1, GRID**2), 0.9)), 64)
    red, _, blue = image[0, :, 32, 32]  # where both reach
    hidden, shown = (blue, red) if near_in_front else (red, blue)
    assert shown > 2 * hidden
    theirs = target((image, torch.empty(0), depth), settings)
    is_left_nearer = [bool(each[0, 32, 24] < each[0, 32, 40]) for each in (rendered, theirs.depth)]
    assert is_left_nearer == [near_in_front, near_in_front]


def test_fewer_gaussians_of_a_patch_are_the_first_ones() -> None:
    """What HFTS trains first."""
    model = GaussianDecoder(5, per_patch=4, dropout=0).eval()
    inputs = torch.randn(2, 5, GRID, GRID), torch.rand(2, 1, 256, 256)
    for whole, some in zip(model(*inputs), model(*inputs, 2), strict=True):
        torch.testing.assert_close(whole.unflatten(1, (-1, 4))[:, :, :2].flatten(1, 2), some)


def test_quaternions_are_the_rotations_of_gram_schmidt() -> None:
    """Also near half turns, where a quaternion's w vanishes."""
    rng = np.random.default_rng(0)
    half_turns = Rotation.from_rotvec(np.pi * np.concatenate([np.eye(3), -np.eye(3)])).as_matrix()
    six = np.concatenate([rng.normal(size=(500, 6)), half_turns[:, :, :2].transpose(0, 2, 1).reshape(-1, 6)])
    first = six[:, :3] / np.linalg.norm(six[:, :3], axis=1, keepdims=True)
    second = six[:, 3:] - (first * six[:, 3:]).sum(1, keepdims=True) * first
    second /= np.linalg.norm(second, axis=1, keepdims=True)
    expected = np.stack([first, second, np.cross(first, second)], -1)
    quaternions = quaternions_of_6d(torch.tensor(six))
    np.testing.assert_allclose(np.linalg.norm(quaternions, axis=1), 1)
    np.testing.assert_allclose(Rotation.from_quat(quaternions, scalar_first=True).as_matrix(), expected, atol=1e-9)
    np.testing.assert_allclose(matrices_of_quaternions(3 * quaternions), expected, atol=1e-9)


def test_rotations_have_finite_gradients_at_degenerate_values() -> None:
    """Zeros, and two vectors in one direction."""
    six = torch.tensor([[0.0] * 6, [1, 2, 3, 2, 4, 6], [1, 0, 0, 0, 1, 0]], requires_grad=True)
    torch.autograd.backward(quaternions_of_6d(six).sum())
    assert six.grad is not None
    assert torch.isfinite(six.grad).all()
