"""Overlap and distance of two volumes: Dice, intersection over union, and the 95th percentile of surface distances."""

import torch

from trainer.metrics.distances import distance_to

# Shape legend: B batch, D, H, W a volume's sides, N surface voxels.
_REACH = 16
"""Distances up to so many voxels are looked for first: most surfaces that are compared are near each other."""


def dice(one_BDHW: torch.Tensor, other_BDHW: torch.Tensor) -> torch.Tensor:
    """Return 2 |A and B| / (|A| + |B|) for each pair of sets, (B,); 1 for two empty sets (Dice 1945).

    Args:
        one_BDHW: booleans, of any shape behind the batch.
        other_BDHW: the same.
    """
    both_B, sum_B = _overlap(one_BDHW, other_BDHW)
    return torch.where(sum_B > 0, 2 * both_B / sum_B.clamp(min=1), 1.0).float()


def intersection_over_union(one_BDHW: torch.Tensor, other_BDHW: torch.Tensor) -> torch.Tensor:
    """Return |A and B| / |A or B| for each pair of sets, (B,); 1 for two empty sets (Jaccard 1912)."""
    both_B, sum_B = _overlap(one_BDHW, other_BDHW)
    return torch.where(sum_B > 0, both_B / (sum_B - both_B).clamp(min=1), 1.0).float()


def hausdorff95(one_DHW: torch.Tensor, other_DHW: torch.Tensor, *, spacing: float = 1.0) -> torch.Tensor:
    """Return the 95th percentile of the distances from each surface's voxels to the other surface, a scalar.

    Percentile over both directions together, surfaces in the 6-neighbourhood: as medpy.metric.binary.hd95, which
    SkullBreak's evaluations use. If one set is empty, it is the volume's diagonal, as in BraTS's evaluation (373.13 mm
    for 240 x 240 x 155); if both are, 0.

    Args:
        one_DHW: booleans.
        other_DHW: the same.
        spacing: a voxel's side; the result has its unit.
    """
    one_DHW, other_DHW = find_surface(one_DHW), find_surface(other_DHW)
    is_there = bool(one_DHW.any()), bool(other_DHW.any())
    if not all(is_there):
        diagonal = torch.tensor([spacing * side for side in one_DHW.shape]).square().sum().sqrt()
        return diagonal * float(any(is_there))
    box = _find_box(one_DHW | other_DHW)
    one_DHW, other_DHW = one_DHW[box], other_DHW[box]
    distances_N = torch.cat([_nearest(one_DHW, other_DHW), _nearest(other_DHW, one_DHW)])
    return _percentile(distances_N, 0.95) * spacing


def find_surface(volume_DHW: torch.Tensor) -> torch.Tensor:
    """Find the voxels of a set that have one of their six neighbours outside of it, (D, H, W) booleans.

    What lies beyond the volume's border is outside.
    """
    padded = torch.nn.functional.pad(volume_DHW, (1,) * 6, value=False)
    inner_DHW = volume_DHW.clone()
    for axis in range(3):
        for start in (0, 2):
            window = [slice(1, -1)] * 3
            window[axis] = slice(start, start + volume_DHW.shape[axis])
            inner_DHW &= padded[tuple(window)]
    return volume_DHW & ~inner_DHW


def _overlap(one_BDHW: torch.Tensor, other_BDHW: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    one_BN, other_BN = one_BDHW.flatten(1), other_BDHW.flatten(1)
    return (one_BN & other_BN).sum(1).double(), (one_BN.sum(1) + other_BN.sum(1)).double()


def _find_box(volume_DHW: torch.Tensor) -> tuple[slice, slice, slice]:
    """Return the smallest box that has all of a set's voxels."""
    lines = [volume_DHW.any(2).any(1), volume_DHW.any(2).any(0), volume_DHW.any(1).any(0)]
    depth, height, width = (line.nonzero().flatten() for line in lines)
    return _span(depth), _span(height), _span(width)


def _span(places: torch.Tensor) -> slice:
    return slice(int(places[0]), int(places[-1]) + 1)


def _nearest(from_DHW: torch.Tensor, to_DHW: torch.Tensor) -> torch.Tensor:
    """Return each voxel's distance to the nearest one of the other surface, (N,).

    By a distance transform, whose time doesn't grow with the number of pairs: two skulls of 512^3 voxels have 10^11.
    """
    reach = _REACH
    while True:
        distances_N = distance_to(to_DHW[None], reach=reach)[0][from_DHW]
        if reach >= max(to_DHW.shape) or distances_N.max() <= reach:
            return distances_N
        reach *= 4


def _percentile(values_N: torch.Tensor, share: float) -> torch.Tensor:
    """Interpolate linearly between ranks; torch.quantile takes 16 million values at most."""
    ordered_N = values_N.sort().values
    rank = share * (len(ordered_N) - 1)
    low = int(rank)
    high = min(low + 1, len(ordered_N) - 1)
    return ordered_N[low].lerp(ordered_N[high], rank - low)
