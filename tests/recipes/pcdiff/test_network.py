"""The network is the original's: names, size and outputs; its parts against NumPy in float64."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from tests.recipes.operations import CountedOperations
from trainer.recipes.pcdiff.layers import Attention, SetAbstraction, SqueezeExcitation
from trainer.recipes.pcdiff.network import PointVoxelNet, embed_steps
from trainer.recipes.pcdiff.settings import ModelSettings

# Shape legend: B batch, N points, S points of the skull, I of the implant.
SMALL = ModelSettings(width=0.25, neighbours=16, radius=0.5)
# Made once with the modules of pfriedri/pcdiff-implant at ca24604 and plain loops for their CUDA kernels, in float64:
# the first and the last point's noise, and mean and deviation of all.
FIRST = (0.062265755303770716, 0.09732368158745007, -0.08904612487853102)
LAST = (0.12072300637568076, 0.02614683501234983, -0.01688275170366918)
MEAN, DEVIATION = 0.021684174248146528, 0.26557808842979325


def test_names_and_sizes_are_the_originals() -> None:
    with torch.device("meta"):
        model = PointVoxelNet(ModelSettings(), points=30_720)
    shapes = {name: tuple(weight.shape) for name, weight in model.state_dict().items()}
    assert sum(weight.numel() for weight in model.parameters()) == 27_648_963
    assert len(shapes) == 296
    expected = {
        "sa_layers.0.0.voxel_layers.0.weight": (32, 3, 3, 3, 3),
        "sa_layers.0.0.voxel_layers.7.fc.0.weight": (4, 32),
        "sa_layers.0.2.mlps.0.layers.0.weight": (32, 35, 1, 1),
        "sa_layers.1.0.voxel_layers.0.weight": (64, 128, 3, 3, 3),
        "sa_layers.1.0.voxel_layers.6.q.weight": (64, 64, 1, 1, 1),
        "sa_layers.1.1.mlps.0.layers.3.weight": (128, 64, 1, 1),
        "sa_layers.2.0.point_features.layers.0.weight": (128, 192, 1),
        "sa_layers.3.mlps.0.layers.6.weight": (512, 256, 1, 1),
        "global_att.norm.bias": (512,),
        "fp_layers.0.0.mlp.layers.0.weight": (256, 832, 1),
        "fp_layers.1.3.voxel_layers.7.fc.2.weight": (256, 32),
        "fp_layers.3.0.mlp.layers.6.weight": (64, 128, 1),
        "fp_layers.3.2.voxel_layers.4.weight": (64, 64, 3, 3, 3),
        "classifier.0.layers.1.weight": (128,),
        "classifier.2.weight": (3, 128, 1),
        "embedf.2.bias": (64,),
    }
    assert {name: shapes.get(name) for name in expected} == expected
    centers = [part.centers for part in model.modules() if isinstance(part, SetAbstraction)]
    assert centers == [10_240, 2_560, 640, 160]
    radii = [part.radius for part in model.modules() if isinstance(part, SetAbstraction)]
    assert radii == pytest.approx([0.1, 0.2, 0.4, 0.8])


def test_outputs_are_the_originals() -> None:
    model = PointVoxelNet(SMALL, points=576).double().eval()
    fill_with_waves(model)
    cloud_BN3 = torch.stack([spiral(0), spiral(1000)])
    skull_BS3, implant_BI3 = cloud_BN3[:, :528], cloud_BN3[:, 528:]
    with torch.no_grad():
        noise_BI3 = model(skull_BS3, implant_BI3, torch.tensor([3, 700]))
    assert noise_BI3[0, 0].tolist() == pytest.approx(FIRST, abs=1e-7)
    assert noise_BI3[1, -1].tolist() == pytest.approx(LAST, abs=1e-7)
    assert (float(noise_BI3.mean()), float(noise_BI3.std())) == pytest.approx((MEAN, DEVIATION), abs=1e-7)


def fill_with_waves(model: nn.Module) -> None:
    """Set all weights to values that anybody can compute."""
    for number, (name, weight) in enumerate(model.state_dict().items()):
        wave = torch.sin(torch.arange(weight.numel(), dtype=torch.float64) * 0.7 + number)
        is_matrix, is_scale = weight.dim() > 1, weight.dim() == 1 and name.endswith("weight")
        scale = weight[0].numel() ** -0.5 if is_matrix else 0.1
        weight.copy_((float(is_scale) + scale * wave).view(weight.shape))


def spiral(first: int) -> torch.Tensor:
    """Spread 576 points evenly on a sphere of radius 2.5."""
    number_N = torch.arange(576, dtype=torch.float64) + first
    z_N, angle_N = 1 - 2 * (number_N * 0.754877 % 1), 2 * math.pi * (number_N * 0.569840 % 1)
    around_N = (1 - z_N**2).sqrt()
    return 2.5 * torch.stack([around_N * angle_N.cos(), around_N * angle_N.sin(), z_N], 1)


def test_every_weight_gets_a_gradient() -> None:
    """DDP needs no search for unused parameters."""
    model = PointVoxelNet(SMALL, points=240)
    model(torch.randn(1, 216, 3), torch.randn(1, 24, 3), torch.tensor([5])).square().sum().backward()
    assert [name for name, weight in model.named_parameters() if weight.grad is None] == []


def test_attention_can_be_left_out() -> None:
    names = PointVoxelNet(ModelSettings(width=0.25, attention=False), points=240).state_dict()
    assert not any("global_att" in name or ".q." in name for name in names)


def test_the_steps_embedding_has_sines_and_cosines() -> None:
    step = np.array([0, 7, 999])
    angle = step[:, None] * np.exp(-math.log(10_000) * np.arange(32) / 31)
    expected = np.concatenate([np.sin(angle), np.cos(angle)], 1)
    assert embed_steps(torch.from_numpy(step), 64).numpy() == pytest.approx(expected, abs=1e-12)


def test_attention_is_numpys() -> None:
    torch.manual_seed(0)
    layer, x = Attention(16, dimensions=1).double(), torch.randn(2, 16, 5, dtype=torch.float64)
    weights = {name: weight.detach().numpy() for name, weight in layer.named_parameters()}

    def project(name: str, values: np.ndarray) -> np.ndarray:
        return np.asarray(weights[f"{name}.weight"][:, :, 0] @ values + weights[f"{name}.bias"][:, None])

    found = layer(x).detach().numpy()
    for number in range(2):
        one = x[number].numpy()
        scores = np.exp(project("q", one).T @ project("k", one))
        summed = one + project("out", project("v", one) @ (scores / scores.sum(1, keepdims=True)).T)
        groups = summed.reshape(8, -1)
        deviation = np.sqrt(groups.var(1, keepdims=True) + 1e-5)
        normal = ((groups - groups.mean(1, keepdims=True)) / deviation).reshape(16, 5)
        assert found[number] == pytest.approx(normal / (1 + np.exp(-normal)), abs=1e-10)


def test_squeeze_and_excitation_is_numpys() -> None:
    torch.manual_seed(0)
    layer, x = SqueezeExcitation(16).double(), torch.randn(2, 16, 3, 3, 3, dtype=torch.float64)
    narrow, wide = (weight.detach().numpy() for weight in layer.parameters())
    mean = x.numpy().mean((2, 3, 4))
    share = 1 / (1 + np.exp(-np.maximum(mean @ narrow.T, 0) @ wide.T))
    assert layer(x).detach().numpy() == pytest.approx(x.numpy() * share[:, :, None, None, None], abs=1e-12)


def test_a_center_has_the_largest_features_of_its_ball() -> None:
    """With one center and a large ball that is the largest of all points."""
    torch.manual_seed(0)
    layer = SetAbstraction(8, [8], centers=1, radius=100, neighbours=20).double()
    features_B8N, coords_B3N = (torch.randn(1, size, 20, dtype=torch.float64) for size in (8, 3))
    found, center_B3M = layer(features_B8N, coords_B3N)
    assert torch.equal(center_B3M, coords_B3N[:, :, :1])
    every = layer.mlps[0](torch.cat([coords_B3N - center_B3M, features_B8N], 1)[:, :, None])
    assert found[0, :, 0].detach().numpy() == pytest.approx(every[0, :, 0].amax(1).detach().numpy(), abs=1e-12)


def test_only_the_first_level_looks_for_far_points_and_no_distance_has_a_kernel_of_its_own() -> None:
    """Each far point takes a few operations one after another; `cdist` starts 128 GPU threads for every distance."""
    model = PointVoxelNet(SMALL, points=576).eval()
    abstractions = [part for part in model.modules() if isinstance(part, SetAbstraction)]
    cloud_BN3 = torch.stack([spiral(0), spiral(1000)]).float()
    inputs = cloud_BN3[:, :528], cloud_BN3[:, 528:], torch.tensor([3, 700])
    with torch.no_grad(), CountedOperations() as count:
        found = model(*inputs)
    assert count.calls["argmax"] == abstractions[0].centers - 1
    assert not [name for name in count.calls if "cdist" in name]
    for part in abstractions:
        part.is_ordered = False
    with torch.no_grad():
        assert torch.equal(model(*inputs), found), "searching anew finds the same centers"
