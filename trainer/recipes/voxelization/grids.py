"""From points to grids and back: means and maxima over cells, splatting onto nodes, trilinear interpolation.

A grid of G cells a side over the unit cube has its nodes at i / G. All functions are vectorised over points and batch.
"""

import torch

# Shape legend: B batch, N points, C channels, G nodes or cells a side, K the eight corners of a cell.
_INSIDE = 1 - 1e-5


def index_cells(points_BN3: torch.Tensor, cells: int) -> torch.Tensor:
    """Return the flat index x + G (y + G z) of the cell that each point is in, (B, N); points are clamped to the cube.

    The order is that of Peng et al. 2020, Convolutional Occupancy Networks (arXiv:2003.04618), on whose grids
    published weights have been trained: z is the slowest axis.
    """
    x_BN, y_BN, z_BN = (points_BN3.clamp(0.0, _INSIDE) * cells).long().unbind(-1)
    return x_BN + cells * (y_BN + cells * z_BN)


def local_max(features_BNC: torch.Tensor, cells_BN: torch.Tensor, count: int) -> torch.Tensor:
    """Return, for each point, the maximum of each channel over all points in its cell, (B, N, C)."""
    batch, _, channels = features_BNC.shape
    index_BNC = cells_BN[..., None].expand_as(features_BNC)
    grid_BGC = features_BNC.new_zeros(batch, count, channels)
    grid_BGC = grid_BGC.scatter_reduce(1, index_BNC, features_BNC, "amax", include_self=False)
    return grid_BGC.gather(1, index_BNC)


def cell_means(features_BNC: torch.Tensor, cells_BN: torch.Tensor, count: int) -> torch.Tensor:
    """Return the mean of each channel over the points of each cell, (B, C, G^3); 0 in empty cells.

    In float32 at least: a GPU adds in the features' type, and in bfloat16 a count of ones doesn't grow beyond 256.
    """
    features_BNC = features_BNC.to(torch.promote_types(features_BNC.dtype, torch.float32))
    features_BCN = features_BNC.transpose(1, 2)
    index_BCN = cells_BN[:, None].expand_as(features_BCN)
    sums_BCG = features_BCN.new_zeros(*features_BCN.shape[:2], count).scatter_add(2, index_BCN, features_BCN)
    ones_BN = features_BNC.new_ones(cells_BN.shape)
    points_BG = features_BNC.new_zeros(cells_BN.shape[0], count).scatter_add(1, cells_BN, ones_BN)
    return sums_BCG / points_BG.clamp(min=1)[:, None]


def splat(points_BN3: torch.Tensor, values_BNC: torch.Tensor, size: int) -> torch.Tensor:
    """Distribute each point's values to the eight nodes around it by trilinear weights, (B, C, G, G, G).

    The grid is periodic: node G is node 0. Axes are x, y, z. Peng et al. 2021, Shape As Points (arXiv:2106.03452),
    section 3.1, "point rasterization".
    """
    batch, points, channels = values_BNC.shape
    corners_KBN, weights_KBN = _find_corners(points_BN3 * size, size, is_periodic=True)
    grid_BCG = values_BNC.new_zeros(batch, channels, size**3)
    values_BCN = values_BNC.transpose(1, 2)
    for corner_BN, weight_BN in zip(corners_KBN, weights_KBN, strict=True):
        index_BCN = corner_BN[:, None].expand(batch, channels, points)
        grid_BCG = grid_BCG.scatter_add(2, index_BCN, values_BCN * weight_BN[:, None])
    return grid_BCG.reshape(batch, channels, size, size, size)


def interpolate_periodic(grid_BCGGG: torch.Tensor, points_BN3: torch.Tensor) -> torch.Tensor:
    """Interpolate a periodic grid with axes x, y, z at points in the unit cube, (B, N, C): `splat`'s transpose."""
    size = grid_BCGGG.shape[-1]
    return _interpolate(grid_BCGGG, *_find_corners(points_BN3 * size, size, is_periodic=True))


def interpolate_features(grid_BCGGG: torch.Tensor, points_BN3: torch.Tensor) -> torch.Tensor:
    """Interpolate a grid with axes z, y, x, whose first and last nodes are the cube's faces, (B, N, C).

    As Convolutional Occupancy Networks do: `grid_sample` with align_corners. Points are clamped to the cube.
    """
    size = grid_BCGGG.shape[-1]
    positions_BN3 = points_BN3.clamp(0.0, _INSIDE).flip(-1) * (size - 1)
    return _interpolate(grid_BCGGG, *_find_corners(positions_BN3, size, is_periodic=False))


def _find_corners(positions_BN3: torch.Tensor, size: int, *, is_periodic: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Return flat indices of the eight nodes around each position, and their weights, each (K, B, N)."""
    low_BN3 = positions_BN3.detach().floor()
    if not is_periodic:
        low_BN3 = low_BN3.clamp(0, size - 2)
    part_BN3 = positions_BN3 - low_BN3
    first_BN3 = low_BN3.long()
    x_2BN, y_2BN, z_2BN = torch.stack([first_BN3, first_BN3 + 1]).remainder(size).unbind(-1)
    index_KBN = (x_2BN[:, None, None] * size + y_2BN[None, :, None]) * size + z_2BN[None, None]
    by_x_2BN, by_y_2BN, by_z_2BN = torch.stack([1 - part_BN3, part_BN3]).unbind(-1)
    weights_KBN = by_x_2BN[:, None, None] * by_y_2BN[None, :, None] * by_z_2BN[None, None]
    return index_KBN.flatten(0, 2), weights_KBN.flatten(0, 2)


def _interpolate(grid_BCGGG: torch.Tensor, corners_KBN: torch.Tensor, weights_KBN: torch.Tensor) -> torch.Tensor:
    """Weigh the eight nodes around each point, (B, N, C).

    Unlike that of `grid_sample`, the gradient of `gather` is deterministic on GPUs (compute.deterministic).
    """
    batch, channels = grid_BCGGG.shape[:2]
    grid_BCG = grid_BCGGG.flatten(2)
    result_BCN = grid_BCG.new_zeros(())
    for corner_BN, weight_BN in zip(corners_KBN, weights_KBN, strict=True):
        index_BCN = corner_BN[:, None].expand(batch, channels, -1)
        result_BCN = result_BCN + grid_BCG.gather(2, index_BCN) * weight_BN[:, None]
    return result_BCN.transpose(1, 2)
