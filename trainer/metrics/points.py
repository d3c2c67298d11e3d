"""Distances between point clouds."""

from collections.abc import Iterator

import torch

# Shape legend: B batch, N and M points, m points of a block.
_BLOCK, _CPU_BLOCK = 1 << 25, 1 << 17
"""Distances that are in memory at the same time: on a CPU as many as its cache holds."""


def split_squared_distances(
    points_BN3: torch.Tensor, others_BM3: torch.Tensor, *, block: int = 0
) -> Iterator[torch.Tensor]:
    """Yield the squared distances of some points after others to all of the other cloud, each (B, m, M).

    By subtraction, axis by axis: matrix products lose the digits of small distances, and the kernel with which
    `torch.cdist` subtracts on a GPU starts a block of threads for each single distance.

    Args:
        points_BN3: the points whose distances are yielded.
        others_BM3: the other cloud.
        block: how many distances are computed at once; 0: as many as suit the device.
    """
    block = block or (_CPU_BLOCK if points_BN3.device.type == "cpu" else _BLOCK)
    size = max(1, block // (others_BM3.shape[0] * others_BM3.shape[1]))
    others_3B1M = others_BM3.movedim(2, 0)[:, :, None].contiguous()
    for part_Bm3 in torch.split(points_BN3, size, 1):
        pairs = zip(part_Bm3.unbind(2), others_3B1M, strict=True)
        differences = (place_Bm[:, :, None] - other_B1M for place_Bm, other_B1M in pairs)
        squared_BmM = next(differences).square_()
        for difference_BmM in differences:
            squared_BmM.addcmul_(difference_BmM, difference_BmM)
        yield squared_BmM


def nearest_distances(points_BN3: torch.Tensor, others_BM3: torch.Tensor, *, block: int = 0) -> torch.Tensor:
    """Compute the Euclidean distance from each point to the nearest one of the other cloud: (B, N)."""
    parts = [part.amin(2) for part in split_squared_distances(points_BN3, others_BM3, block=block)]
    return torch.cat(parts, 1).sqrt()


def chamfer_distance(points_BN3: torch.Tensor, others_BM3: torch.Tensor) -> torch.Tensor:
    """Compute the mean distance to the nearest point, averaged over both directions: (B,), in the points' unit.

    Fan et al. 2017, A Point Set Generation Network (arXiv:1612.00603), section 4.1; here with distances instead of
    their squares, and means instead of sums, so that it has the points' unit and doesn't grow with their number.
    """
    there_B = nearest_distances(points_BN3, others_BM3).mean(1)
    back_B = nearest_distances(others_BM3, points_BN3).mean(1)
    return (there_B + back_B) / 2
