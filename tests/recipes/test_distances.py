"""Distance transforms against scipy's, and a closed form."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import ndimage

from trainer.metrics.distances import distance_to, signed_distance


@pytest.mark.parametrize("share", [0.001, 0.02, 0.5, 0.98])
def test_signed_distance_equals_scipys_transform(share: float) -> None:
    """For sparse and dense masks, in volumes with unequal sides."""
    mask = np.random.default_rng(5).random((2, 9, 16, 23)) < share
    mask[:, 4, 4, 4], mask[:, 0, 0, 0] = True, False
    expected = [ndimage.distance_transform_edt(~each) - ndimage.distance_transform_edt(each) for each in mask]
    np.testing.assert_allclose(signed_distance(torch.from_numpy(mask)).numpy(), np.stack(expected), rtol=1e-6)


def test_distance_to_one_voxel_is_euclidean() -> None:
    """The closed form."""
    mask = torch.zeros(1, 5, 6, 7, dtype=torch.bool)
    mask[0, 1, 2, 3] = True
    z, y, x = np.mgrid[:5, :6, :7]
    expected = np.sqrt((z - 1) ** 2 + (y - 2) ** 2 + (x - 3) ** 2)
    np.testing.assert_allclose(distance_to(mask)[0].numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize("reach", [0, 1, 3, 8, 40])
def test_distances_within_reach_are_exact_and_others_are_never_too_small(reach: int) -> None:
    """Both kinds are there but for the largest reach."""
    mask = np.random.default_rng(3).random((2, 9, 16, 23)) < 0.002
    mask[:, 4, 4, 4] = True
    expected = np.stack([ndimage.distance_transform_edt(~each) for each in mask])
    found = distance_to(torch.from_numpy(mask), reach=reach).numpy()
    is_near = expected <= reach
    np.testing.assert_allclose(found[is_near], expected[is_near], rtol=1e-6)
    assert (found[~is_near] > reach).all()
    assert is_near.all() == (reach == 40)
