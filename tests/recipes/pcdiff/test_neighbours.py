"""Far points, balls and interpolation, against NumPy and SciPy in float64."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from trainer.recipes.pcdiff.neighbours import find_far_points, find_in_balls, gather_points, interpolate

# Shape legend: B batch, C channels, N points, M centers, K neighbours.
BLOCKS = (0, 150, 1)
"""With 0 all are in one block; with 150 it has a few centers, and the last one fewer; with 1 each has one."""


def cloud(points: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(2, 3, points, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_each_far_point_is_the_farthest_from_those_before() -> None:
    coords_B3N = cloud(80)
    chosen = find_far_points(coords_B3N, 20)
    for number in range(2):
        points_N3, expected = coords_B3N[number].numpy().T, [0]
        while len(expected) < 20:
            distances = cKDTree(points_N3[expected]).query(points_N3)[0]
            expected.append(int(distances.argmax()))
        assert chosen[number].tolist() == expected


def test_far_points_of_far_points_are_the_first_ones() -> None:
    """So deeper levels needn't look for them; also if many distances are equal."""
    coords_B3N = (cloud(300) * 2).round()
    centers_B3M = gather_points(coords_B3N, find_far_points(coords_B3N, 60)[:, :, None])[:, :, :, 0]
    assert len({tuple(place) for place in centers_B3M[0].T.tolist()}) == 60
    assert find_far_points(centers_B3M, 20).tolist() == [list(range(20))] * 2


@pytest.mark.parametrize("block", BLOCKS)
def test_a_ball_has_its_first_points_and_repeats_the_first_one(block: int) -> None:
    coords_B3N, centers_B3M = cloud(50), cloud(13, seed=1)
    centers_B3M[:, :, 0] = 100  # an empty ball
    found = find_in_balls(coords_B3N, centers_B3M, 0.9, 4, block=block)
    sizes = set()
    for number in range(2):
        tree = cKDTree(coords_B3N[number].numpy().T)
        for center in range(13):
            inside = sorted(tree.query_ball_point(centers_B3M[number, :, center].numpy(), 0.9))
            sizes.add(min(len(inside), 5))
            expected = (inside + [inside[0] if inside else 0] * 4)[:4]
            assert found[number, center].tolist() == expected
    assert sizes >= {0, 1, 2, 5}, "empty, small and full balls"


@pytest.mark.parametrize("block", BLOCKS)
def test_a_point_has_its_three_nearest_centers_by_squared_distance(block: int) -> None:
    coords_B3N, centers_B3M = cloud(40), cloud(9, seed=1)
    features_BCM = torch.randn(2, 5, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    found = interpolate(features_BCM, centers_B3M, coords_B3N, block=block)
    for number in range(2):
        distance, index = cKDTree(centers_B3M[number].numpy().T).query(coords_B3N[number].numpy().T, k=3)
        weight: NDArray[np.float64] = 1 / distance**2
        near = features_BCM[number].numpy()[:, index]
        assert found[number].numpy() == pytest.approx((near * weight).sum(2) / weight.sum(1), abs=1e-10)


def test_a_point_on_a_center_has_its_features() -> None:
    centers_B3M, features_BCM = cloud(9), cloud(9, seed=3)
    assert interpolate(features_BCM, centers_B3M, centers_B3M).numpy() == pytest.approx(features_BCM.numpy(), abs=1e-6)


def test_two_centers_are_enough() -> None:
    """A small cloud has fewer than three centers on its deepest level."""
    assert interpolate(cloud(2), cloud(2, seed=1), cloud(7)).shape == (2, 3, 7)


def test_features_are_gathered_and_their_gradients_added() -> None:
    index_BMK = torch.tensor([[[0, 0, 3]], [[1, 4, 1]]])
    features_BCN = cloud(5).requires_grad_()
    gathered = gather_points(features_BCN, index_BMK)
    assert gathered.shape == (2, 3, 1, 3)
    assert torch.equal(gathered[1, :, 0], features_BCN[1][:, [1, 4, 1]])
    assert torch.autograd.gradcheck(lambda x: gather_points(x, index_BMK), features_BCN)
