"""Operations on voxel grids against loops and scipy, in float64."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch
from scipy.ndimage import map_coordinates
from torch.autograd import gradcheck

from tests.recipes.voxelization.references import draw, splat_in_a_loop
from trainer.recipes.voxelization.grids import (
    cell_means,
    index_cells,
    interpolate_features,
    interpolate_periodic,
    local_max,
    splat,
)

# Shape legend: B batch, N points, C channels, G nodes or cells a side.
SIZE = 6


def test_cells_are_numbered_with_x_first() -> None:
    """Points on or beyond the faces are in the outermost cells."""
    points_BN3 = torch.tensor([[[0.0, 0.0, 0.0], [0.3, 0.0, 0.0], [0.0, 0.3, 0.0], [0.0, 0.0, 0.3], [1.0, 1.2, -0.1]]])
    assert index_cells(points_BN3, 4).tolist() == [[0, 1, 4, 16, 3 + 4 * 3]]


def test_local_maxima_are_those_of_a_loop_over_cells() -> None:
    """Each point gets the maximum over its cell, also where all features are negative."""
    points_BN3, features_BNC = draw(2, 50, 3), draw(2, 50, 4, seed=1) - 2
    cells_BN = index_cells(points_BN3, 3)
    found = local_max(features_BNC, cells_BN, 27)
    for batch, point in product(range(2), range(50)):
        mates = [other for other in range(50) if cells_BN[batch, other] == cells_BN[batch, point]]
        assert torch.equal(found[batch, point], features_BNC[batch, mates].amax(0))


def test_means_over_cells_are_those_of_a_loop() -> None:
    """Empty cells are 0."""
    points_BN3, features_BNC = draw(2, 40, 3), draw(2, 40, 4, seed=1)
    found_BCG = cell_means(features_BNC, index_cells(points_BN3, 4), 64)
    expected_BCG = np.zeros((2, 4, 64))
    for batch, cell in product(range(2), range(64)):
        x, y, z = cell % 4, cell // 4 % 4, cell // 16
        inside = [p for p in range(40) if (points_BN3[batch, p] * 4).int().tolist() == [x, y, z]]
        if inside:
            expected_BCG[batch, :, cell] = features_BNC[batch, inside].numpy().mean(0)
    assert np.abs(found_BCG.numpy() - expected_BCG).max() < 1e-12
    assert (expected_BCG == 0).all(1).any()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_means_of_features_of_16_bits_are_those_of_float32(dtype: torch.dtype) -> None:
    """A GPU adds in the type of what is added: in bfloat16 sums and counts of ones stop at 256, cells have hundreds."""
    features_BNC = (1 + draw(2, 4000, 3)).to(dtype)
    found_BCG = cell_means(features_BNC, torch.ones(2, 4000, dtype=torch.long), 3)
    assert found_BCG.dtype == torch.float32
    assert found_BCG[:, :, 1].numpy() == pytest.approx(features_BNC.double().mean(1).numpy(), rel=1e-5)


def test_splatting_is_that_of_a_loop() -> None:
    """Also beyond the last node, where the grid begins again, and at a node itself."""
    points_BN3, values_BNC = draw(2, 30, 3), draw(2, 30, 3, seed=1)
    points_BN3[0, 0] = torch.tensor([0.99, 0.5, 1 / 3])
    found_BCGGG = splat(points_BN3, values_BNC, SIZE).numpy()
    for batch in range(2):
        expected = splat_in_a_loop(points_BN3[batch].numpy(), values_BNC[batch].numpy(), SIZE)
        assert np.abs(found_BCGGG[batch] - expected).max() < 1e-12


def test_splatting_keeps_the_sum() -> None:
    """Weights of a point's eight nodes sum to 1."""
    values_BNC = draw(1, 100, 3)
    sums_C = splat(draw(1, 100, 3, seed=1), values_BNC, SIZE).sum((0, 2, 3, 4))
    assert torch.allclose(sums_C, values_BNC.sum((0, 1)), atol=1e-12)


def test_periodic_interpolation_is_scipys() -> None:
    """Axes are x, y, z."""
    grid_BCGGG, points_BN3 = draw(2, 3, SIZE, SIZE, SIZE), draw(2, 40, 3, seed=1)
    found_BNC = interpolate_periodic(grid_BCGGG, points_BN3).numpy()
    for batch, channel in product(range(2), range(3)):
        at = points_BN3[batch].numpy().T * SIZE
        expected_N = map_coordinates(grid_BCGGG[batch, channel].numpy(), at, order=1, mode="grid-wrap")
        assert np.abs(found_BNC[batch, :, channel] - expected_N).max() < 1e-12


def test_periodic_interpolation_is_the_transpose_of_splatting() -> None:
    """So the surface's shift uses the weights with which the normals were distributed."""
    points_BN3, values_BNC, grid_BCGGG = draw(1, 40, 3), draw(1, 40, 2, seed=1), draw(1, 2, SIZE, SIZE, SIZE, seed=2)
    one = (splat(points_BN3, values_BNC, SIZE) * grid_BCGGG).sum()
    other = (values_BNC * interpolate_periodic(grid_BCGGG, points_BN3)).sum()
    assert one.item() == pytest.approx(other.item(), abs=1e-12)


def test_features_are_interpolated_as_scipy_and_grid_sample_do() -> None:
    """Axes are z, y, x; the first and last nodes are the cube's faces, beyond which nothing changes."""
    grid_BCGGG, points_BN3 = draw(2, 3, SIZE, SIZE, SIZE), draw(2, 40, 3, seed=1) * 1.2 - 0.1
    found_BNC = interpolate_features(grid_BCGGG, points_BN3)
    clamped_BN3 = points_BN3.clamp(0.0, 1 - 1e-5)
    for batch, channel in product(range(2), range(3)):
        at = clamped_BN3[batch].numpy().T[::-1] * (SIZE - 1)
        expected_N = map_coordinates(grid_BCGGG[batch, channel].numpy(), at, order=1)
        assert np.abs(found_BNC[batch, :, channel].numpy() - expected_N).max() < 1e-12
    torchs = torch.nn.functional.grid_sample(grid_BCGGG, 2 * clamped_BN3[:, :, None, None] - 1, align_corners=True)
    assert torch.allclose(found_BNC, torchs[..., 0, 0].transpose(1, 2), atol=1e-12)


def test_gradients_are_those_of_finite_differences() -> None:
    """Of splatting and both interpolations, for points, values and grids; and of pooling for features."""
    points_BN3, values_BNC = draw(2, 5, 3).requires_grad_(), draw(2, 5, 2, seed=1).requires_grad_()
    grid_BCGGG, cells_BN = draw(2, 2, 4, 4, 4, seed=2).requires_grad_(), index_cells(draw(2, 5, 3), 2)
    assert gradcheck(lambda points, values: splat(points, values, 4), (points_BN3, values_BNC))
    assert gradcheck(interpolate_periodic, (grid_BCGGG, points_BN3))
    assert gradcheck(interpolate_features, (grid_BCGGG, points_BN3))
    assert gradcheck(lambda values: local_max(values, cells_BN, 8), (values_BNC,))
    assert gradcheck(lambda values: cell_means(values, cells_BN, 8), (values_BNC,))
