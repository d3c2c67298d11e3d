"""The competition's score: surface Dice, variation of information and their sum, against independent computations."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import ndimage
from scipy.spatial import KDTree
from skimage.metrics import variation_of_information as voi_of_skimage

from trainer.metrics.surfaces import surface_dice, surface_score, variation_of_information

Mask = NDArray[np.bool_]


def random_mask(seed: int, share: float = 0.3) -> Mask:
    """Blobs of some size."""
    noise = ndimage.gaussian_filter(np.random.default_rng(seed).normal(size=(14, 15, 16)), 1)
    mask: Mask = noise > np.quantile(noise, 1 - share)
    return mask


def border_points(mask: Mask) -> NDArray[np.int64]:
    """Voxels with a neighbour outside, one by one."""
    padded = np.pad(mask, 1)
    steps = [step for axis in range(3) for step in (np.eye(3, dtype=int)[axis], -np.eye(3, dtype=int)[axis])]
    points = [point for point in np.argwhere(padded) if any(not padded[tuple(point + step)] for step in steps)]
    return np.array(points)


@pytest.mark.parametrize("tolerance", [0.0, 1.0, 2.0])
def test_surface_dice_equals_a_search_for_the_nearest_point(tolerance: float) -> None:
    """By a k-d tree over the border's voxels."""
    predicted, true = random_mask(1), random_mask(2)
    a, b = border_points(predicted), border_points(true)
    near = (KDTree(b).query(a)[0] <= tolerance).sum() + (KDTree(a).query(b)[0] <= tolerance).sum()
    assert surface_dice(predicted, true, tolerance=tolerance) == pytest.approx(near / (len(a) + len(b)), rel=1e-12)


def test_plane_that_is_two_voxels_off_counts_and_one_that_is_three_off_does_not() -> None:
    """The tolerance is 2."""
    plane = np.zeros((20, 8, 8), bool)
    plane[8] = True
    assert surface_dice(np.roll(plane, 2, 0), plane) == 1
    assert surface_dice(np.roll(plane, 3, 0), plane) == 0


def test_surface_dice_of_empty_volumes_is_one_and_of_one_empty_volume_zero() -> None:
    """The competition's convention."""
    empty, full = np.zeros((4, 4, 4), bool), np.ones((4, 4, 4), bool)
    assert surface_dice(empty, empty) == 1
    assert surface_dice(empty, full) == surface_dice(full, empty) == 0


@pytest.mark.parametrize("seed", range(4))
def test_variation_of_information_equals_skimages(seed: int) -> None:
    """Of the 26-connected components, over the voxels that are in one of the volumes."""
    predicted, true = random_mask(seed, 0.1), random_mask(seed + 50, 0.12)
    union = predicted | true
    labels = [ndimage.label(mask, np.ones((3, 3, 3)))[0][union] for mask in (true, predicted)]
    assert labels[0].max() > 3
    expected = sum(voi_of_skimage(*labels))  # type: ignore[no-untyped-call]
    assert variation_of_information(predicted, true) == pytest.approx(expected, rel=1e-9)


def test_bridge_between_two_surfaces_costs_the_entropy_of_its_halves() -> None:
    """The closed form: what is one component is two, and the voxel between them, in the other volume."""
    apart = np.ones((3, 3, 9), bool)
    apart[:, :, 4] = False
    joined = apart.copy()
    joined[1, 1, 4] = True
    bridge = 1 / joined.sum()
    half = (1 - bridge) / 2
    expected = -2 * half * np.log2(half) - bridge * np.log2(bridge)
    assert variation_of_information(joined, apart) == pytest.approx(expected, rel=1e-12)
    assert variation_of_information(apart, joined) == pytest.approx(expected, rel=1e-12)
    assert variation_of_information(apart, apart) == 0


def test_empty_volumes_have_no_variation() -> None:
    """And a score of 1."""
    empty = np.zeros((4, 4, 4), bool)
    assert variation_of_information(empty, empty) == 0
    assert surface_score(empty, empty) == pytest.approx((1, 1, 1, 1))


def test_score_is_the_weighted_sum_of_its_parts() -> None:
    """.30 topology + .35 surface Dice + .35 / (1 + .3 VOI)."""
    predicted, true = random_mask(3), random_mask(4)
    found = surface_score(predicted, true)
    assert found.voi == pytest.approx(1 / (1 + 0.3 * variation_of_information(predicted, true)))
    assert found.surface_dice == surface_dice(predicted, true)
    expected = 0.3 * found.topology + 0.35 * found.surface_dice + 0.35 * found.voi
    assert found.score == pytest.approx(expected, rel=1e-12)
    assert surface_score(true, true).score == pytest.approx(1)


def test_unlabelled_voxels_count_nowhere() -> None:
    """They are background in both volumes before anything is computed."""
    predicted, true = random_mask(3), random_mask(4)
    ignored = np.zeros_like(true)
    ignored[:, :, 8:] = True
    found = surface_score(predicted, true, ignored)
    assert found == surface_score(predicted & ~ignored, true & ~ignored)
    assert found == surface_score(predicted | ignored, true, ignored)


def test_a_hole_in_a_sheet_and_a_bridge_between_sheets_lower_the_score() -> None:
    """Both are nearly invisible to voxels: that is what topology and VOI are for."""
    sheets = np.zeros((24, 24, 24), bool)
    sheets[4:7], sheets[14:17] = True, True
    hole, bridge = sheets.copy(), sheets.copy()
    hole[4:7, 3:5, 3:5] = False
    bridge[7:14, 3, 3] = True
    assert surface_score(hole, sheets).surface_dice > 0.98
    assert surface_score(hole, sheets).topology < 1
    assert surface_score(bridge, sheets).surface_dice > 0.98
    assert surface_score(bridge, sheets).voi < 0.8
