"""From points to voxels and back, as in Liu et al. 2019, Point-Voxel CNN (arXiv:1907.03739), section 3.2.

Vectorised over clouds, points and channels. Features are gathered and added by rows, because these operations have
deterministic versions on GPUs.
"""

from itertools import product

import torch

# Shape legend: B batch, C channels, N points, R side of the grid, V = B * R^3 voxels of all clouds, P = B * N points.


@torch.no_grad()
def to_grid(coords_B3N: torch.Tensor, side: int) -> torch.Tensor:
    """Scale each cloud into [0, R - 1]: its mean to the middle, its farthest point to half a side from there."""
    centered_B3N = coords_B3N - coords_B3N.mean(2, keepdim=True)
    farthest_B11 = centered_B3N.norm(dim=1, keepdim=True).amax(2, keepdim=True).clamp(min=1e-12)
    grid_B3N: torch.Tensor = ((centered_B3N / (2 * farthest_B11) + 0.5) * side).clamp(0, side - 1)
    return grid_B3N


def voxelize(features_BCN: torch.Tensor, grid_B3N: torch.Tensor, side: int) -> torch.Tensor:
    """Average the features of the points in each voxel: (B, C, R, R, R), zero where there are none.

    Args:
        features_BCN: of the points.
        grid_B3N: coordinates in [0, R - 1]; a point belongs to the voxel at the nearest whole coordinates.
        side: R.
    """
    batch, channels, _ = features_BCN.shape
    voxel_P = _flatten(grid_B3N.round().long(), side).flatten()
    rows_PC = features_BCN.transpose(1, 2).flatten(0, 1)
    rows_PC = rows_PC.to(torch.promote_types(rows_PC.dtype, torch.float32))  # bf16 loses too much of a sum
    # Not bincount, which waits for a GPU.
    count_V = rows_PC.new_zeros(batch * side**3).index_add(0, voxel_P, torch.ones_like(rows_PC[:, 0]))
    mean_VC = rows_PC.new_zeros(len(count_V), channels).index_add(0, voxel_P, rows_PC / count_V[voxel_P, None])
    return mean_VC.view(batch, side, side, side, channels).permute(0, 4, 1, 2, 3)


def devoxelize(voxels_BCRRR: torch.Tensor, grid_B3N: torch.Tensor) -> torch.Tensor:
    """Interpolate between the eight voxels around each point, linearly along each axis: (B, C, N)."""
    # Nothing is made of Python's numbers here: copying them waits for a GPU.
    batch, channels, side = voxels_BCRRR.shape[:3]
    rows_VC = voxels_BCRRR.permute(0, 2, 3, 4, 1).reshape(-1, channels)
    low_B3N = grid_B3N.floor().clamp(max=max(side - 2, 0))
    share_B3N = grid_B3N - low_B3N
    total_PC = rows_VC.new_zeros(batch * grid_B3N.shape[2], channels)
    neighbours = [
        [(low_BN, 1 - share_BN), ((low_BN + 1).clamp(max=side - 1), share_BN)]
        for low_BN, share_BN in zip(low_B3N.long().unbind(1), share_B3N.unbind(1), strict=True)
    ]
    for (x_BN, a_BN), (y_BN, b_BN), (z_BN, c_BN) in product(*neighbours):
        voxel_P = _flatten(torch.stack([x_BN, y_BN, z_BN], 1), side).flatten()
        weight_P1 = (a_BN * b_BN * c_BN).reshape(-1, 1).to(rows_VC.dtype)
        total_PC = total_PC + rows_VC.index_select(0, voxel_P) * weight_P1
    return total_PC.view(batch, -1, channels).transpose(1, 2)


def _flatten(voxel_B3N: torch.Tensor, side: int) -> torch.Tensor:
    """Number the voxels of all clouds: (B, N)."""
    cloud_B1 = torch.arange(len(voxel_B3N), device=voxel_B3N.device)[:, None]
    x_BN, y_BN, z_BN = voxel_B3N.unbind(1)
    return ((cloud_B1 * side + x_BN) * side + y_BN) * side + z_BN
