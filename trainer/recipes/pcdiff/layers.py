"""The network's parts, with the names of pfriedri/pcdiff-implant's weights (pcdiff/modules).

Coordinates stay float32; only convolutions are autocast.
"""

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional

from trainer.recipes.pcdiff.neighbours import find_far_points, find_in_balls, gather_points, interpolate
from trainer.recipes.pcdiff.voxels import devoxelize, to_grid, voxelize

# Shape legend: B batch, C and D channels, N points, M centers, K neighbours, R side of the grid.
_GROUPS = 8


class SharedMLP(nn.Module):
    """The same perceptron for every point: 1x1 convolutions, each with group normalisation and Swish."""

    def __init__(self, before: int, after: Sequence[int], *, dimensions: int = 1) -> None:
        super().__init__()
        convolution = nn.Conv1d if dimensions == 1 else nn.Conv2d
        layers: list[nn.Module] = []
        for width in after:
            layers += [convolution(before, width, 1), nn.GroupNorm(_GROUPS, width), nn.SiLU()]
            before = width
        self.layers = nn.Sequential(*layers)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Map (B, C, N) or (B, C, M, K) to as many points."""
        mapped: torch.Tensor = self.layers(features)
        return mapped


class SqueezeExcitation(nn.Module):
    """Weighs each channel of a grid by all channels' means: Hu et al. 2018 (arXiv:1709.01507)."""

    def __init__(self, channels: int, *, reduction: int = 8) -> None:
        super().__init__()
        narrow = max(1, channels // reduction)
        layers = [nn.Linear(channels, narrow, bias=False), nn.ReLU(), nn.Linear(narrow, channels, bias=False)]
        self.fc = nn.Sequential(*layers, nn.Sigmoid())

    def forward(self, voxels_BCRRR: torch.Tensor) -> torch.Tensor:
        """Return the weighted grid."""
        share_BC = self.fc(voxels_BCRRR.mean((2, 3, 4)))
        weighted_BCRRR: torch.Tensor = voxels_BCRRR * share_BC[:, :, None, None, None]
        return weighted_BCRRR


class Attention(nn.Module):
    """One head of self-attention between all places, a shortcut, normalisation and Swish; scores aren't scaled."""

    def __init__(self, channels: int, *, dimensions: int) -> None:
        super().__init__()
        convolution = nn.Conv3d if dimensions == 3 else nn.Conv1d
        self.q, self.k, self.v, self.out = (convolution(channels, channels, 1) for _ in range(4))
        self.norm = nn.GroupNorm(_GROUPS, channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (B, C, ...) to the same shape."""
        q, k, v = (part(x).flatten(2).transpose(1, 2).contiguous()[:, None] for part in (self.q, self.k, self.v))
        mixed = functional.scaled_dot_product_attention(q, k, v, scale=1.0)[:, 0]
        return functional.silu(self.norm(x + self.out(mixed.transpose(1, 2).reshape(x.shape))))


class PVConv(nn.Module):
    """The sum of a coarse and a fine branch: convolutions between voxels, and a perceptron for each point."""

    def __init__(self, before: int, after: int, *, side: int, dropout: float, has_attention: bool = False) -> None:
        super().__init__()
        self.side = side
        last = [Attention(after, dimensions=3)] if has_attention else [nn.SiLU(), SqueezeExcitation(after)]
        self.voxel_layers = nn.Sequential(
            *(nn.Conv3d(before, after, 3, padding=1), nn.GroupNorm(_GROUPS, after), nn.SiLU(), nn.Dropout(dropout)),
            *(nn.Conv3d(after, after, 3, padding=1), nn.GroupNorm(_GROUPS, after), *last),
        )
        self.point_features = SharedMLP(before, [after])

    def forward(self, features_BCN: torch.Tensor, coords_B3N: torch.Tensor) -> torch.Tensor:
        """Return features (B, D, N)."""
        grid_B3N = to_grid(coords_B3N, self.side)
        voxels_BDRRR = self.voxel_layers(voxelize(features_BCN, grid_B3N, self.side))
        summed_BDN: torch.Tensor = devoxelize(voxels_BDRRR, grid_B3N) + self.point_features(features_BCN)
        return summed_BDN


class SetAbstraction(nn.Module):
    """Fewer points with wider features: centers that are far apart, each with the largest features of its ball.

    With `is_ordered` the points are themselves centers of such a layer, each the farthest from those before it: then
    the first ones are the centers.
    """

    def __init__(
        self,
        before: int,
        after: Sequence[int],
        *,
        centers: int,
        radius: float,
        neighbours: int,
        is_ordered: bool = False,
    ) -> None:
        super().__init__()
        self.centers, self.radius, self.neighbours, self.is_ordered = centers, radius, neighbours, is_ordered
        self.mlps = nn.ModuleList([SharedMLP(before + 3, after, dimensions=2)])

    def forward(self, features_BCN: torch.Tensor, coords_B3N: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return features (B, D, M) and coordinates (B, 3, M) of the centers."""
        centers_B3M = self._choose_centers(coords_B3N)
        index_BMK = find_in_balls(coords_B3N, centers_B3M, self.radius, self.neighbours)
        offset_B3MK = gather_points(coords_B3N, index_BMK) - centers_B3M[:, :, :, None]
        near_BCMK = torch.cat([offset_B3MK, gather_points(features_BCN, index_BMK)], 1)
        return self.mlps[0](near_BCMK).amax(3), centers_B3M

    def _choose_centers(self, coords_B3N: torch.Tensor) -> torch.Tensor:
        if self.is_ordered:
            return coords_B3N[:, :, : self.centers]
        return gather_points(coords_B3N, find_far_points(coords_B3N, self.centers)[:, :, None])[:, :, :, 0]


class FeaturePropagation(nn.Module):
    """Back to more points: their features from below, and those that they had on the way down."""

    def __init__(self, before: int, after: Sequence[int]) -> None:
        super().__init__()
        self.mlp = SharedMLP(before, after)

    def forward(
        self, features_BCM: torch.Tensor, centers_B3M: torch.Tensor, skipped_BDN: torch.Tensor, coords_B3N: torch.Tensor
    ) -> torch.Tensor:
        """Return features (B, ..., N) of the points."""
        near_BCN = interpolate(features_BCM, centers_B3M, coords_B3N)
        propagated: torch.Tensor = self.mlp(torch.cat([near_BCN, skipped_BDN], 1))
        return propagated
