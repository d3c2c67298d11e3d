"""Which points are far from each other, near a center, or nearest: Qi et al. 2017, PointNet++ (arXiv:1706.02413).

Distances are computed by subtraction, not with matrix products, which lose the digits that balls of radius 0.1 in
clouds of +-3 need, above all in TF32. They are computed in blocks: 10,240 centers x 30,720 points take 1.2 GiB.
"""

from collections.abc import Iterator

import torch

from trainer.metrics.points import split_squared_distances

# Shape legend: B batch, C channels, N points, M centers, K neighbours, m centers or points of a block.
_SMALLEST = 1e-10
"""Squared distances are at least this, so that a point on a center has the center's features."""


@torch.compiler.disable  # type: ignore[untyped-decorator]  # torch's
@torch.no_grad()
def find_far_points(coords_B3N: torch.Tensor, count: int) -> torch.Tensor:
    """Choose points one after another, each as far as possible from those before: indices (B, M).

    The first one is point 0; of equally far points the first is taken (section 3.2). So the first ones of points that
    have been chosen so are what would be chosen of them.
    """
    batch, _, points = coords_B3N.shape
    chosen_BM = torch.zeros(batch, count, dtype=torch.long, device=coords_B3N.device)
    nearest_BN = coords_B3N.new_full((batch, points), torch.inf)
    for number in range(1, count):
        last_B31 = coords_B3N.gather(2, chosen_BM[:, number - 1, None, None].expand(-1, 3, 1))
        torch.minimum(nearest_BN, (coords_B3N - last_B31).square_().sum(1), out=nearest_BN)
        chosen_BM[:, number] = nearest_BN.argmax(1)
    return chosen_BM


@torch.compiler.disable  # type: ignore[untyped-decorator]  # torch's
@torch.no_grad()
def find_in_balls(
    coords_B3N: torch.Tensor, centers_B3M: torch.Tensor, radius: float, count: int, *, block: int = 0
) -> torch.Tensor:
    """List the first points, in their order, that are nearer to each center than a radius: indices (B, M, K).

    A ball with fewer points repeats its first one (section 3.2); an empty ball has point 0.
    """
    blocks = []
    wanted_K = torch.arange(1, count + 1, device=coords_B3N.device)
    for squared_BmN in _split_squared_distances(centers_B3M, coords_B3N, block):
        rank_BmN = (squared_BmN < radius**2).cumsum(2, dtype=torch.int32)
        index_BmK = torch.searchsorted(rank_BmN, wanted_K.int().expand(*rank_BmN.shape[:2], -1).contiguous())
        is_there_BmK = wanted_K <= rank_BmN[:, :, -1:]
        first_Bm1 = index_BmK[:, :, :1].where(is_there_BmK[:, :, :1], 0)
        blocks.append(index_BmK.where(is_there_BmK, first_Bm1))
    return torch.cat(blocks, 1)


def gather_points(features_BCN: torch.Tensor, index_BMK: torch.Tensor) -> torch.Tensor:
    """Return the features of the listed points: (B, C, M, K)."""
    batch, channels, points = features_BCN.shape
    first_B11 = torch.arange(batch, device=index_BMK.device)[:, None, None] * points
    rows_NC = features_BCN.transpose(1, 2).flatten(0, 1)
    gathered = rows_NC.index_select(0, (index_BMK + first_B11).flatten())
    return gathered.view(*index_BMK.shape, channels).permute(0, 3, 1, 2)


def interpolate(
    features_BCM: torch.Tensor, centers_B3M: torch.Tensor, coords_B3N: torch.Tensor, *, block: int = 0
) -> torch.Tensor:
    """Average the features of each point's three nearest centers by 1 / distance^2 (section 3.3): (B, C, N)."""
    index_BNK, weight_BNK = _find_nearest(coords_B3N, centers_B3M, block)
    near_BCNK = gather_points(features_BCM, index_BNK)
    mean_BCN: torch.Tensor = (near_BCNK * weight_BNK[:, None].to(near_BCNK.dtype)).sum(3)
    return mean_BCN


@torch.compiler.disable  # type: ignore[untyped-decorator]  # torch's
@torch.no_grad()
def _find_nearest(coords_B3N: torch.Tensor, centers_B3M: torch.Tensor, block: int) -> tuple[torch.Tensor, torch.Tensor]:
    count = min(3, centers_B3M.shape[2])
    found = [each.topk(count, largest=False) for each in _split_squared_distances(coords_B3N, centers_B3M, block)]
    squared_BNK = torch.cat([each.values for each in found], 1)
    weight_BNK = 1 / squared_BNK.clamp(min=_SMALLEST)
    return torch.cat([each.indices for each in found], 1), weight_BNK / weight_BNK.sum(2, keepdim=True)


def _split_squared_distances(from_B3M: torch.Tensor, to_B3N: torch.Tensor, block: int) -> Iterator[torch.Tensor]:
    """Yield the squared distances of some points after others to all of the second cloud, each (B, m, N)."""
    return split_squared_distances(from_B3M.transpose(1, 2), to_B3N.transpose(1, 2), block=block)
