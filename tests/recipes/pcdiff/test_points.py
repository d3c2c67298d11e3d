"""The Chamfer distance, against SciPy's trees."""

import numpy as np
import pytest
import torch
from scipy.spatial import cKDTree

from trainer.metrics.points import chamfer_distance, nearest_distances


def test_chamfer_distance_is_that_of_scipy() -> None:
    rng = np.random.default_rng(0)
    ours, theirs = rng.normal(size=(3, 200, 3)), rng.normal(0.3, 2, size=(3, 90, 3))
    expected = [
        (cKDTree(two).query(one)[0].mean() + cKDTree(one).query(two)[0].mean()) / 2
        for one, two in zip(ours, theirs, strict=True)
    ]
    found = chamfer_distance(torch.from_numpy(ours), torch.from_numpy(theirs))
    assert found.numpy() == pytest.approx(np.array(expected), rel=1e-12)


def test_blocks_dont_change_distances() -> None:
    clouds = torch.rand(2, 50, 3, generator=torch.Generator().manual_seed(0))
    whole = nearest_distances(clouds, clouds.flip(0))
    assert torch.equal(whole, nearest_distances(clouds, clouds.flip(0), block=700))


def test_equal_clouds_far_from_the_origin_have_no_distance() -> None:
    """A matrix product would leave about 0.1 here."""
    cloud = torch.rand(1, 300, 3, generator=torch.Generator().manual_seed(0)) + 400
    assert float(chamfer_distance(cloud, cloud)) == 0
