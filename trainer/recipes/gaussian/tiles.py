"""Which Gaussians reach which tile of a picture: work is shared out by tile, in chunks of bounded size."""

from collections.abc import Iterator
from typing import NamedTuple

import torch

# Shape legend: B batch, N Gaussians of a picture, S tiles along a side, T tiles of all pictures (B * S * S), R tiles of
# a chunk, L the most Gaussians of a tile in the chunk.
_MOST_PAIRS = 1 << 27
"""So many pairs of a tile and a Gaussian are compared at once; each takes a byte."""


class Chunk(NamedTuple):
    """Some tiles with their Gaussians, the nearest first.

    tiles (R,): their numbers, image by image, row by row. corners (R, 2): their first column and row, in pixels.
    members (R, L): the Gaussians' numbers over all pictures, and behind them B * N where a tile has fewer than L.
    """

    tiles: torch.Tensor
    corners: torch.Tensor
    members: torch.Tensor


def list_chunks(boxes_BN4: torch.Tensor, *, side: int, tile: int, most: int) -> Iterator[Chunk]:
    """List the tiles that Gaussians reach; tiles with similar numbers of them come together.

    Args:
        boxes_BN4: first and last column, first and last row of each Gaussian, in order of depth.
        side: tiles along a side.
        tile: a tile's side in pixels.
        most: a chunk has at most so many pairs of a pixel and a Gaussian, unless it is a single tile.
    """
    batch, count = boxes_BN4.shape[:2]
    group = max(1, _MOST_PAIRS // max(1, side * side * count))
    for first in range(0, batch, group):
        touching_TN = _touch(boxes_BN4[first : first + group], side, tile)
        yield from _share_out(touching_TN, first * side * side, side=side, tile=tile, most=most, padding=batch * count)


def _touch(boxes_BN4: torch.Tensor, side: int, tile: int) -> torch.Tensor:
    """Tell for each tile of some pictures which of their Gaussians reach it, (T, N)."""
    starts_S1 = torch.arange(side, device=boxes_BN4.device)[:, None] * tile
    left_BN, right_BN, top_BN, bottom_BN = boxes_BN4.unbind(-1)

    def reach(first_BN: torch.Tensor, last_BN: torch.Tensor) -> torch.Tensor:
        return (first_BN[:, None] < starts_S1 + tile) & (last_BN[:, None] >= starts_S1)

    touching_BSSN = reach(top_BN, bottom_BN)[:, :, None] & reach(left_BN, right_BN)[:, None]
    return touching_BSSN.flatten(0, 2)


def _share_out(
    touching_TN: torch.Tensor, first_tile: int, *, side: int, tile: int, most: int, padding: int
) -> Iterator[Chunk]:
    counts_T = touching_TN.sum(1)
    tiles_M, gaussians_M = touching_TN.nonzero(as_tuple=True)
    tiles_M = tiles_M + first_tile
    members_M = tiles_M.div(side * side, rounding_mode="floor") * touching_TN.shape[1] + gaussians_M
    starts_T = counts_T.cumsum(0) - counts_T
    order_T = counts_T.argsort(descending=True, stable=True)
    sizes = counts_T[order_T].tolist()
    filled = sum(size > 0 for size in sizes)
    place = 0
    while place < filled:
        length = sizes[place]
        rows_R = order_T[place : min(filled, place + max(1, most // (length * tile * tile)))]
        place += len(rows_R)
        steps_L = torch.arange(length, device=rows_R.device)
        is_padding_RL = steps_L >= counts_T[rows_R][:, None]
        entries_RL = (starts_T[rows_R][:, None] + steps_L).clamp(max=len(members_M) - 1)
        tiles_R = rows_R + first_tile
        inside_R = tiles_R % (side * side)
        yield Chunk(
            tiles=tiles_R,
            corners=tile * torch.stack([inside_R % side, inside_R.div(side, rounding_mode="floor")], -1),
            members=members_M[entries_RL].masked_fill(is_padding_RL, padding),
        )
