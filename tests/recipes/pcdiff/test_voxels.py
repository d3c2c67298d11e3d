"""From points to voxels and back, against NumPy and SciPy in float64."""

import numpy as np
import pytest
import torch
from scipy import ndimage

from tests.recipes.operations import CountedOperations
from trainer.recipes.pcdiff.voxels import devoxelize, to_grid, voxelize

# Shape legend: B batch, C channels, N points, R side of the grid.
SIDE = 5


@pytest.fixture
def grid() -> torch.Tensor:
    """Two clouds of 60 points, the last of them on corners of the grid."""
    grid_B3N = torch.rand(2, 3, 60, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) * (SIDE - 1)
    grid_B3N[:, :, -2], grid_B3N[:, :, -1] = 0, SIDE - 1
    return grid_B3N


def features(channels: int, *shape: int) -> torch.Tensor:
    return torch.randn(2, channels, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2))


def test_a_voxel_has_the_mean_of_its_points(grid: torch.Tensor) -> None:
    features_BCN = features(3, 60)
    sums, counts = np.zeros((2, 3, SIDE, SIDE, SIDE)), np.zeros((2, 1, SIDE, SIDE, SIDE))
    for cloud in range(2):
        for point in range(60):
            x, y, z = np.round(grid[cloud, :, point].numpy()).astype(int)
            sums[cloud, :, x, y, z] += features_BCN[cloud, :, point].numpy()
            counts[cloud, :, x, y, z] += 1
    assert (counts > 1).any()
    assert (counts == 0).any()
    voxels = voxelize(features_BCN, grid, SIDE)
    assert voxels.numpy() == pytest.approx(sums / np.maximum(counts, 1), abs=1e-12)


def test_a_point_has_what_scipy_interpolates(grid: torch.Tensor) -> None:
    voxels = features(3, SIDE, SIDE, SIDE)
    points = devoxelize(voxels, grid)
    for cloud in range(2):
        for channel in range(3):
            expected = ndimage.map_coordinates(voxels[cloud, channel].numpy(), grid[cloud].numpy(), order=1)
            assert points[cloud, channel].numpy() == pytest.approx(expected, abs=1e-12)


def test_interpolation_copies_no_python_numbers_to_the_device(grid: torch.Tensor) -> None:
    """Each such copy waits until a GPU has done all before it; `lift_fresh` makes a tensor of numbers."""
    with CountedOperations() as counted:
        torch.tensor([1, 0, 1])
        assert counted.calls["lift_fresh"] == 1
        devoxelize(features(3, SIDE, SIDE, SIDE), grid)
    assert counted.calls["lift_fresh"] == 1


def test_gradients_are_those_of_finite_differences(grid: torch.Tensor) -> None:
    few = grid[:, :, -7:]
    assert torch.autograd.gradcheck(lambda x: voxelize(x, few, SIDE), features(2, 7).requires_grad_())
    voxels = features(1, SIDE, SIDE, SIDE).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: devoxelize(x, few), voxels)


def test_a_cloud_fills_the_grid_around_its_mean() -> None:
    """Each cloud by itself: its mean is in the middle, and its farthest point half a side away."""
    coords_B3N = features(3, 40) * 7 + 100
    grid_B3N = to_grid(coords_B3N, 8).numpy()
    for cloud in range(2):
        centered = coords_B3N[cloud].numpy() - coords_B3N[cloud].numpy().mean(1, keepdims=True)
        expected = (centered / np.linalg.norm(centered, axis=0).max() / 2 + 0.5) * 8
        assert grid_B3N[cloud] == pytest.approx(np.clip(expected, 0, 7), abs=1e-12)


def test_a_cloud_of_equal_points_is_in_the_middle() -> None:
    assert to_grid(torch.full((1, 3, 4), 5.0), 8).tolist() == torch.full((1, 3, 4), 4.0).tolist()
