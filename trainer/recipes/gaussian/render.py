"""The differentiable renderer: Gaussians to a picture and its depth, front to back over black.

A pixel's value is the sum of alpha_i T_i value_i over the Gaussians in order of depth, with
alpha = min(0.99, opacity exp(-d^2 / 2)) and T_i the product of 1 - alpha over those in front (Kerbl et al. 2023,
arXiv:2308.04079, equation 3). d^2 is the Mahalanobis distance of the projected Gaussian, which ends at its box.
"""

from typing import Any, NamedTuple

import torch
from torch.autograd.function import once_differentiable

from trainer.recipes.gaussian.camera import Splats, project
from trainer.recipes.gaussian.decoder import Gaussians
from trainer.recipes.gaussian.tiles import Chunk, list_chunks

# Shape legend: B batch, N Gaussians, T tiles of all pictures, S tiles along a side, R tiles of a chunk, L Gaussians of
# a tile, Y rows and X columns of a tile, P = Y * X its pixels, C = 4: red, green, blue, depth, V columns of the table,
# H height, W width.
MOST_ALPHA = 0.99
_FAR_AWAY = 1e30
"""The squared distance of what is outside of a box."""
_CENTRE, _CONIC, _OPACITY, _VALUES, _BOX = slice(0, 2), slice(2, 5), 5, slice(6, 10), slice(10, 14)
"""Columns of the table of Gaussians; those before the box have gradients."""
_MOST_ON_CPU, _MOST_ON_GPU = 1 << 17, 1 << 26
"""Pairs of a pixel and a Gaussian at once: on a CPU what stays in its cache, on a GPU about 3 GiB in all."""


def render(gaussians: Gaussians, pixels: int, *, most: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Render each picture of a batch.

    Args:
        gaussians: in float32 or float64; all of them get gradients.
        pixels: the side of the square picture.
        most: so many pairs of a pixel and a Gaussian are in memory at once; 0: what suits the device.

    Returns:
        The pictures, (B, 3, H, W), and the depths, (B, H, W), each weighted with what is seen of a Gaussian.
    """
    tile = 8 if pixels <= 64 else 16
    device = gaussians.positions.device
    most = most or (_MOST_ON_CPU if device.type == "cpu" else _MOST_ON_GPU)
    with torch.autocast(device.type, enabled=False):
        splats = project(gaussians, pixels)
        values_BCHW: torch.Tensor = _Composite.apply(*splats, pixels, tile, most)  # type: ignore[no-untyped-call]
    return values_BCHW[:, :3], values_BCHW[:, 3]


class _Composite(torch.autograd.Function):
    """Composites splats; the backward pass computes each chunk again instead of keeping it."""

    @staticmethod
    def forward(ctx: Any, *arguments: Any) -> torch.Tensor:
        splats, (pixels, tile, most) = Splats(*arguments[:5]), arguments[5:]
        side, batch = -(-pixels // tile), len(splats.centres)
        table, chunks = _tabulate(splats), []
        values_TPC = table.new_zeros(batch * side * side, tile * tile, 4)
        for chunk in list_chunks(splats.boxes, side=side, tile=tile, most=most):
            layers = _lay(table[chunk.members], chunk, tile)
            values_TPC[chunk.tiles] = layers.weights.mT @ layers.rows[..., _VALUES]
            chunks.append(chunk)
        ctx.save_for_backward(table)
        ctx.chunks, ctx.tile, ctx.shape = chunks, tile, splats.opacities.shape
        values_BSYSXC = values_TPC.reshape(batch, side, side, tile, tile, 4).transpose(2, 3)
        return values_BSYSXC.reshape(batch, side * tile, side * tile, 4)[:, :pixels, :pixels].permute(0, 3, 1, 2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient_BCHW: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (table,), tile, (batch, count) = ctx.saved_tensors, ctx.tile, ctx.shape
        gradient_TPC = _cut_into_tiles(gradient_BCHW, tile)
        gradients = torch.zeros_like(table[:, : _BOX.start])
        for chunk in ctx.chunks:
            layers = _lay(table[chunk.members], chunk, tile)
            rows_RLV = _differentiate(layers, gradient_TPC[chunk.tiles], tile)
            gradients.index_add_(0, chunk.members.flatten(), rows_RLV.flatten(0, 1))
        each_BNV = gradients[:-1].reshape(batch, count, -1)
        centres, conics, opacities, values = (each_BNV[..., part] for part in (_CENTRE, _CONIC, _OPACITY, _VALUES))
        return centres, conics, opacities, None, values, None, None, None


class _Layers(NamedTuple):
    """The Gaussians of some tiles at each of their pixels; `seen` is the light that reaches a layer."""

    rows: torch.Tensor
    dx: torch.Tensor
    dy: torch.Tensor
    bells: torch.Tensor
    alphas: torch.Tensor
    seen: torch.Tensor
    weights: torch.Tensor


def _tabulate(splats: Splats) -> torch.Tensor:
    """Return a row for each Gaussian of all pictures, and a last one that reaches nothing."""
    opacities_BN1 = splats.opacities.unsqueeze(-1)
    columns = [splats.centres, splats.conics, opacities_BN1, splats.values, splats.boxes]
    rows = torch.cat(columns, -1).flatten(0, 1)
    nothing = rows.new_zeros(1, rows.shape[1])
    nothing[:, _BOX] = rows.new_tensor([0, -1, 0, -1])
    return torch.cat([rows, nothing])


def _lay(rows_RLV: torch.Tensor, chunk: Chunk, tile: int) -> _Layers:
    steps = torch.arange(tile, device=rows_RLV.device)
    columns_R1X, lines_R1Y = ((chunk.corners[:, None, axis : axis + 1] + steps) for axis in (0, 1))
    x_RL1, y_RL1 = torch.split(rows_RLV[..., _CENTRE], 1, -1)
    a_RL1, b_RL1, c_RL1 = torch.split(rows_RLV[..., _CONIC], 1, -1)
    left_RL1, right_RL1, top_RL1, bottom_RL1 = torch.split(rows_RLV[..., _BOX], 1, -1)
    dx_RLX, dy_RLY = columns_R1X - x_RL1, lines_R1Y - y_RL1
    is_beside_RLX = (columns_R1X < left_RL1) | (columns_R1X > right_RL1)
    is_above_RLY = (lines_R1Y < top_RL1) | (lines_R1Y > bottom_RL1)
    along_x_RLX = (a_RL1 * dx_RLX.square()).masked_fill_(is_beside_RLX, _FAR_AWAY)
    along_y_RLY = (c_RL1 * dy_RLY.square()).masked_fill_(is_above_RLY, _FAR_AWAY)
    squares_RLYX = (2 * b_RL1 * dy_RLY).unsqueeze(-1) * dx_RLX.unsqueeze(-2)
    squares_RLYX += along_x_RLX.unsqueeze(-2)
    squares_RLYX += along_y_RLY.unsqueeze(-1)
    bells_RLP = squares_RLYX.mul_(-0.5).exp_().flatten(2)
    alphas_RLP = (bells_RLP * rows_RLV[..., _OPACITY, None]).clamp_(max=MOST_ALPHA)
    through_RLP = (1 - alphas_RLP).cumprod(1)
    seen_RLP = torch.cat([torch.ones_like(through_RLP[:, :1]), through_RLP[:, :-1]], 1)
    return _Layers(rows_RLV, dx_RLX, dy_RLY, bells_RLP, alphas_RLP, seen_RLP, alphas_RLP * seen_RLP)


def _differentiate(layers: _Layers, gradient_RPC: torch.Tensor, tile: int) -> torch.Tensor:
    """Return the gradient of each Gaussian's row in each tile, (R, L, V) without the box."""
    worth_RLP = layers.rows[..., _VALUES] @ gradient_RPC.mT
    shares_RLP = layers.weights * worth_RLP
    behind_RLP = shares_RLP.sum(1, keepdim=True) - _add_up(shares_RLP)
    # A larger alpha shows more of its own value, and less of all that is behind it.
    by_alpha_RLP = (layers.seen * worth_RLP).sub_(behind_RLP.div_(1 - layers.alphas))
    by_alpha_RLP.masked_fill_(layers.alphas >= MOST_ALPHA, 0).mul_(layers.bells)
    by_opacity_RL = by_alpha_RLP.sum(-1)
    by_alpha_RLP.mul_(-0.5 * layers.rows[..., _OPACITY, None])
    by_square_RLYX = by_alpha_RLP.reshape(*by_alpha_RLP.shape[:2], tile, tile)
    by_x_RLX, by_y_RLY = by_square_RLYX.sum(-2), by_square_RLYX.sum(-1)
    dx_RLX, dy_RLY = layers.dx, layers.dy
    x_RL, y_RL = (by_x_RLX * dx_RLX).sum(-1), (by_y_RLY * dy_RLY).sum(-1)
    xx_RL, yy_RL = (by_x_RLX * dx_RLX.square()).sum(-1), (by_y_RLY * dy_RLY.square()).sum(-1)
    xy_RL = ((by_square_RLYX * dx_RLX.unsqueeze(-2)).sum(-1) * dy_RLY).sum(-1)
    a_RL, b_RL, c_RL = layers.rows[..., _CONIC].unbind(-1)
    centres = [-2 * (a_RL * x_RL + b_RL * y_RL), -2 * (b_RL * x_RL + c_RL * y_RL)]
    shape = torch.stack([*centres, xx_RL, 2 * xy_RL, yy_RL, by_opacity_RL], -1)
    return torch.cat([shape, layers.weights @ gradient_RPC], -1)


def _add_up(values_RLP: torch.Tensor) -> torch.Tensor:
    """Return the running sum along L; with deterministic algorithms in log2(L) shifted additions.

    torch refuses `cumsum` of floats on a GPU there.
    """
    if not torch.are_deterministic_algorithms_enabled():
        return values_RLP.cumsum(1)
    reach = 1
    while reach < values_RLP.shape[1]:
        values_RLP = torch.cat([values_RLP[:, :reach], values_RLP[:, reach:] + values_RLP[:, :-reach]], 1)
        reach *= 2
    return values_RLP


def _cut_into_tiles(values_BCHW: torch.Tensor, tile: int) -> torch.Tensor:
    """Return (T, P, C): tiles image by image, row by row."""
    batch, channels, _, pixels = values_BCHW.shape
    side = -(-pixels // tile)
    missing = side * tile - pixels
    values_BCHW = torch.nn.functional.pad(values_BCHW, (0, missing, 0, missing))
    values_BCSYSX = values_BCHW.reshape(batch, channels, side, tile, side, tile)
    return values_BCSYSX.permute(0, 2, 4, 3, 5, 1).reshape(-1, tile * tile, channels)
