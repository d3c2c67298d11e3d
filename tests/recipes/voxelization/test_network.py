"""The network against numpy and scipy, and against what is known of the original."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import pytest
import torch
from scipy.ndimage import correlate

from tests.recipes.voxelization.references import Array, draw
from trainer.recipes.voxelization.network import PointDecoder, PointEncoder, ResidualBlock, SurfaceNet
from trainer.recipes.voxelization.settings import ModelSettings
from trainer.recipes.voxelization.unet import Level, UNet

# Shape legend: B batch, N points, C channels, G cells or nodes a side.
Module = TypeVar("Module", bound=torch.nn.Module)
SMALL = ModelSettings(width=8, blocks=2, cells=4, levels=2, offsets=3)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


def randomise(module: Module) -> Module:
    """Draw all weights anew in float64, so that none is 0."""
    for weight in module.double().parameters():
        torch.nn.init.normal_(weight, std=0.4)
    return module


def weights_of(module: torch.nn.Module) -> dict[str, Array]:
    """Return a module's weights as arrays."""
    return {name: tensor.numpy() for name, tensor in module.state_dict().items()}


def test_size_is_the_originals() -> None:
    """1,085,272 weights, counted in pfriedri/pcdiff-implant's Encode2Points with its train_skullbreak.yaml."""
    network = SurfaceNet(ModelSettings(), grid=32, sigma=2.0)
    assert sum(weight.numel() for weight in network.parameters()) == 1_085_272
    parts = {name: sum(w.numel() for w in part.parameters()) for name, part in network.named_children()}
    assert parts == {"encoder": 1_052_544, "decoder_normal": 16_067, "decoder_offset": 16_661, "solver": 0}


def relu(values: Array) -> Array:
    """Set negative values to 0."""
    return np.maximum(values, 0)


def block_in_numpy(weights: dict[str, Array], prefix: str, x: Array) -> Array:
    """Compute a residual block."""

    def linear(name: str, values: Array) -> Array:
        return values @ weights[f"{prefix}{name}.weight"].T + weights.get(f"{prefix}{name}.bias", np.float64(0))

    shortcut = linear("shortcut", x) if f"{prefix}shortcut.weight" in weights else x
    return shortcut + linear("fc_1", relu(linear("fc_0", relu(x))))


@pytest.mark.parametrize(("before", "after"), [(6, 6), (6, 3)])
def test_residual_block_is_numpys(before: int, after: int) -> None:
    """With and without a linear shortcut."""
    block, x_BNC = randomise(ResidualBlock(before, after)), draw(2, 5, before) - 0.5
    assert np.allclose(block(x_BNC).detach().numpy(), block_in_numpy(weights_of(block), "", x_BNC.numpy()), atol=1e-12)


def level_in_numpy(weights: dict[str, Array], grid_CGGG: Array, groups: int) -> Array:
    """Normalise over groups of channels, correlate, and cut at 0; twice."""
    for name in ("SingleConv1", "SingleConv2"):
        scale, shift, kernel = (
            weights[f"basic_module.{name}.{part}"] for part in ("groupnorm.weight", "groupnorm.bias", "conv.weight")
        )
        split = grid_CGGG.reshape(groups, -1)
        normal = (split - split.mean(1, keepdims=True)) / np.sqrt(split.var(1, keepdims=True) + 1e-5)
        normal_CGGG = normal.reshape(grid_CGGG.shape) * scale[:, None, None, None] + shift[:, None, None, None]
        grid_CGGG = relu(
            np.stack(
                [
                    sum(correlate(normal_CGGG[c], kernel[o, c], mode="constant") for c in range(len(normal_CGGG)))
                    for o in range(len(kernel))
                ]
            )
        )
    return grid_CGGG


def test_level_of_the_unet_is_scipys() -> None:
    """Eight groups of two channels: normalisation first, then the convolution, then the ReLU."""
    level, grid_BCGGG = randomise(Level(16, 8, 3)), draw(1, 16, 5, 5, 5)
    expected_CGGG = level_in_numpy(weights_of(level), grid_BCGGG[0].numpy(), groups=8)
    assert np.allclose(level(grid_BCGGG)[0].detach().numpy(), expected_CGGG, atol=1e-10)


def test_unet_joins_levels_by_maxima_and_repetition() -> None:
    """Two levels: down, down, up; the skip's channels come first."""
    unet, grid_BCGGG = randomise(UNet(8, 2)), draw(1, 8, 4, 4, 4)
    first, second = (np.asarray(level) for level in _run_levels_down(unet, grid_BCGGG))
    repeated = second.repeat(2, 1).repeat(2, 2).repeat(2, 3)
    up = level_in_numpy(weights_of(unet.get_submodule("decoders.0")), np.concatenate([first, repeated]), groups=8)
    final = weights_of(unet.final_conv)
    expected = np.einsum("oc,cxyz->oxyz", final["weight"][..., 0, 0, 0], up) + final["bias"][:, None, None, None]
    assert np.allclose(unet(grid_BCGGG)[0].detach().numpy(), expected, atol=1e-8)


def _run_levels_down(unet: torch.nn.Module, grid_BCGGG: torch.Tensor) -> tuple[Array, Array]:
    first = level_in_numpy(weights_of(unet.get_submodule("encoders.0")), grid_BCGGG[0].numpy(), groups=8)
    halved = first.reshape(len(first), 2, 2, 2, 2, 2, 2).max((2, 4, 6))
    return first, level_in_numpy(weights_of(unet.get_submodule("encoders.1")), halved, groups=8)


def test_encoder_pools_over_cells_between_its_blocks() -> None:
    """Before the U-Net: places in cells, a block, maxima over each cell beside the features, a block, means."""
    encoder, points_BN3 = randomise(PointEncoder(SMALL)), draw(1, 30, 3)
    encoder.register_module("unet3d", torch.nn.Identity())
    found_CGGG = encoder(points_BN3)[0].detach().numpy()
    weights, points_N3 = weights_of(encoder), points_BN3[0].numpy()
    cells = [tuple(cell) for cell in (points_N3 * 4).astype(int)]
    x_NC = (points_N3 * 4 % 1) @ weights["fc_pos.weight"].T + weights["fc_pos.bias"]
    x_NC = block_in_numpy(weights, "blocks.0.", x_NC)
    pooled_NC = np.stack([x_NC[[other == cell for other in cells]].max(0) for cell in cells])
    x_NC = block_in_numpy(weights, "blocks.1.", np.concatenate([x_NC, pooled_NC], 1))
    x_NC = x_NC @ weights["fc_c.weight"].T + weights["fc_c.bias"]
    expected_CGGG = np.zeros((8, 4, 4, 4))
    for x, y, z in set(cells):
        expected_CGGG[:, z, y, x] = x_NC[[cell == (x, y, z) for cell in cells]].mean(0)
    assert np.allclose(found_CGGG, expected_CGGG, atol=1e-10)


@pytest.mark.parametrize("cells", [None, 4])
def test_decoder_adds_the_features_of_a_points_place(cells: int | None) -> None:
    """Several vectors for each point lie side by side; the point is seen in the cube, or in its cell."""
    decoder, points_BN3 = randomise(PointDecoder(SMALL, outputs=2, cells=cells)), draw(1, 6, 3)
    features_1C = draw(1, 8, seed=1)
    grid_BCGGG = features_1C[..., None, None, None].expand(1, 8, 4, 4, 4)  # the same everywhere
    weights, place_N3 = weights_of(decoder), points_BN3[0].numpy()
    x_NC = (place_N3 * 4 % 1 if cells else place_N3) @ weights["fc_p.weight"].T + weights["fc_p.bias"]
    for number in range(SMALL.blocks):
        mixed_1C = features_1C.numpy() @ weights[f"fc_c.{number}.weight"].T + weights[f"fc_c.{number}.bias"]
        x_NC = block_in_numpy(weights, f"blocks.{number}.", x_NC + mixed_1C)
    expected_M3 = (relu(x_NC) @ weights["fc_out.weight"].T + weights["fc_out.bias"]).reshape(-1, 3)
    assert np.allclose(decoder(points_BN3, grid_BCGGG)[0].detach().numpy(), expected_M3, atol=1e-10)


def test_each_point_becomes_several_nearby_points_with_normals() -> None:
    """Copies of a point lie side by side, at most a few thousandths away, within the cube."""
    network, points_BN3 = SurfaceNet(SMALL, grid=8, sigma=2.0).eval(), draw(2, 20, 3).float()
    moved_BM3, normals_BM3 = network.orient(points_BN3)
    assert moved_BM3.shape == normals_BM3.shape == (2, 60, 3)
    away_BN33 = moved_BM3.reshape(2, 20, 3, 3) - points_BN3[:, :, None].clamp(max=0.99)
    assert 0 < away_BN33.abs().max() < 0.01
    assert moved_BM3.max() <= torch.tensor(0.99)
    assert network(points_BN3).shape == (2, 8, 8, 8)


def test_offsets_see_a_points_place_in_its_cell_and_normals_in_the_cube() -> None:
    """As in the original. Normals are those of the moved points, and each decoder gets the encoder's features."""
    network, points_BN3 = SurfaceNet(SMALL, grid=8, sigma=2.0), draw(1, 20, 3)
    randomise(network)
    offset, normal = (
        PointDecoder(SMALL, outputs=3, cells=4).double(),
        PointDecoder(SMALL, outputs=1, cells=None).double(),
    )
    offset.load_state_dict(network.decoder_offset.state_dict())
    normal.load_state_dict(network.decoder_normal.state_dict())
    features_BCGGG = network.encoder(points_BN3)
    moved_BM3 = points_BN3.repeat_interleave(3, 1) + 0.001 * offset(points_BN3, features_BCGGG)
    found = network.orient(points_BN3)
    assert torch.allclose(found[0], moved_BM3.clamp(0.0, 0.99), atol=1e-12)
    assert torch.allclose(found[1], normal(moved_BM3, features_BCGGG), atol=1e-10)


def test_each_cloud_is_reconstructed_by_itself() -> None:
    """A batch of two gives what each of them gives alone."""
    network, points_BN3 = SurfaceNet(SMALL, grid=8, sigma=2.0).double().eval(), draw(2, 20, 3)
    both_BGGG = network(points_BN3)
    for number in range(2):
        assert torch.allclose(both_BGGG[number], network(points_BN3[number : number + 1])[0], atol=1e-10)
