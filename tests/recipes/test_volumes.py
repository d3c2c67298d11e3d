"""Dice, IoU and HD95 against scipy, and of empty sets."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.ndimage import binary_erosion, distance_transform_edt, gaussian_filter
from scipy.spatial import cKDTree

from tests.recipes.operations import CountedOperations
from trainer.metrics.volumes import dice, find_surface, hausdorff95, intersection_over_union

# Shape legend: B batch, D, H, W a volume's sides.
SIDES = (9, 12, 10)
Volume = NDArray[np.bool_]


def draw_blobs(seed: int) -> Volume:
    """Draw a volume with connected regions, about a quarter of it, some of them at its border."""
    return np.asarray(gaussian_filter(np.random.default_rng(seed).standard_normal(SIDES), 1.2) > 0.15)


def measure_by_distance_transform(one: Volume, other: Volume) -> float:
    """Compute HD95 as MedPy does: distance transforms of the complement of each border."""
    borders = [volume & ~binary_erosion(volume) for volume in (one, other)]
    distances = [distance_transform_edt(~borders[1])[borders[0]], distance_transform_edt(~borders[0])[borders[1]]]
    return float(np.percentile(np.concatenate(distances), 95))


@pytest.mark.parametrize("seed", range(5))
def test_hd95_is_scipys(seed: int) -> None:
    """By distance transforms, and by a tree of the surfaces' voxels; the surface is the part that erosion removes."""
    one, other = draw_blobs(seed), draw_blobs(seed + 100)
    surfaces = [np.argwhere(volume & ~binary_erosion(volume)) for volume in (one, other)]
    for volume, surface in zip((one, other), surfaces, strict=True):
        assert np.array_equal(find_surface(torch.from_numpy(volume)).nonzero().numpy(), surface)
    found = hausdorff95(torch.from_numpy(one), torch.from_numpy(other)).item()
    assert found == pytest.approx(measure_by_distance_transform(one, other), rel=1e-6)
    nearest = [cKDTree(surfaces[1]).query(surfaces[0])[0], cKDTree(surfaces[0]).query(surfaces[1])[0]]
    assert found == pytest.approx(float(np.percentile(np.concatenate(nearest), 95)), rel=1e-6)


def test_hd95_of_shifted_cubes_is_their_shift() -> None:
    """In units of the spacing."""
    one = torch.zeros(64, 64, 64, dtype=torch.bool)
    one[4:44, 4:44, 4:44] = True
    assert hausdorff95(one, one.roll(3, 0)).item() == 3
    assert hausdorff95(one, one.roll(3, 0), spacing=0.4).item() == pytest.approx(1.2)
    assert hausdorff95(one, one).item() == 0


@pytest.mark.parametrize("shift", [15, 16, 17, 40, 70])
def test_hd95_of_surfaces_that_are_far_apart_is_scipys(shift: int) -> None:
    """Two small cubes, nearer and farther than what is looked for first."""
    one, other = np.zeros((2, 90, 12, 20), dtype=bool)
    one[2:7, 3:8, 3:8], other[2 + shift : 9 + shift, 4:8, 9:15] = True, True
    found = hausdorff95(torch.from_numpy(one), torch.from_numpy(other)).item()
    assert found == pytest.approx(measure_by_distance_transform(one, other), rel=1e-6)


def test_hd95_takes_memory_and_time_for_volumes_not_for_pairs_of_voxels() -> None:
    """Two shells of 64^3 voxels have 17,000 surface voxels each; skulls of 512^3 have half a million."""
    places = torch.arange(64) - 31.5
    radius_DHW = (places[:, None, None] ** 2 + places[:, None] ** 2 + places**2).sqrt()
    one, other = ((radius_DHW > low) & (radius_DHW < low + 3) for low in (24, 25.5))
    assert min(int(find_surface(shell).sum()) for shell in (one, other)) > 10_000
    with CountedOperations() as count:
        found = hausdorff95(one, other).item()
    assert 1 <= found < 2
    assert count.largest <= 2 * 66**3
    assert count.elements < 1000 * 64**3


def test_hd95_of_empty_sets() -> None:
    """Against an empty set it is the volume's diagonal, and between two of them 0."""
    empty, full = torch.zeros(3, 4, 12, dtype=torch.bool), torch.ones(3, 4, 12, dtype=torch.bool)
    assert hausdorff95(empty, full).item() == 13
    assert hausdorff95(full, empty, spacing=2.0).item() == 26
    assert hausdorff95(empty, empty).item() == 0


def test_overlaps_are_those_of_sets() -> None:
    """One value for each pair of a batch."""
    volumes = [np.stack([draw_blobs(seed + first) for seed in range(4)]) for first in (0, 50)]
    found = [measure(*map(torch.from_numpy, volumes)).tolist() for measure in (dice, intersection_over_union)]
    for number, (one, other) in enumerate(zip(*volumes, strict=True)):
        first, second = set(map(tuple, np.argwhere(one))), set(map(tuple, np.argwhere(other)))
        both = len(first & second)
        assert found[0][number] == pytest.approx(2 * both / (len(first) + len(second)))
        assert found[1][number] == pytest.approx(both / len(first | second))


def test_overlaps_of_empty_sets() -> None:
    """Two empty sets agree; an empty and another one don't overlap."""
    empty, full = torch.zeros(1, 2, 2, 2, dtype=torch.bool), torch.ones(1, 2, 2, 2, dtype=torch.bool)
    for measure in (dice, intersection_over_union):
        assert [measure(empty, empty).item(), measure(empty, full).item(), measure(full, full).item()] == [1, 0, 1]
