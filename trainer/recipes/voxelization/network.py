"""From a cloud of points to oriented points: a PointNet with local pooling, a 3-D U-Net, and two decoders.

Peng et al. 2020, Convolutional Occupancy Networks (arXiv:2003.04618), section 3; Peng et al. 2021, Shape As Points
(arXiv:2106.03452), section 3.3. Weights have the names of pfriedri/pcdiff-implant's `Encode2Points`.
"""

import torch
from torch import nn

from trainer.recipes.voxelization.grids import cell_means, index_cells, interpolate_features, local_max
from trainer.recipes.voxelization.poisson import PoissonSolver
from trainer.recipes.voxelization.settings import ModelSettings
from trainer.recipes.voxelization.unet import UNet

# Shape legend: B batch, N points of the input, M = N x offsets, C channels, G cells or nodes a side.
_FARTHEST = 0.99


class SurfaceNet(nn.Module):
    """Maps points (B, N, 3) in the unit cube to a function that is negative inside of their surface, (B, G, G, G)."""

    def __init__(self, settings: ModelSettings, *, grid: int, sigma: float) -> None:
        super().__init__()
        self.offset_scale = settings.offset_scale
        self.offsets = settings.offsets
        self.encoder = PointEncoder(settings)
        self.decoder_normal = PointDecoder(settings, outputs=1, cells=None)
        self.decoder_offset = PointDecoder(settings, outputs=settings.offsets, cells=settings.cells)
        self.solver = PoissonSolver(grid, sigma=sigma)

    def forward(self, points_BN3: torch.Tensor) -> torch.Tensor:
        """Return the function at the grid's nodes i / G, axes x, y, z."""
        grid_BGGG: torch.Tensor = self.solver(*self.orient(points_BN3))
        return grid_BGGG

    def orient(self, points_BN3: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return points near the input, `offsets` for each one, and their normals, each (B, M, 3)."""
        features_BCGGG = self.encoder(points_BN3)
        offsets_BM3 = self.decoder_offset(points_BN3, features_BCGGG)
        moved_BM3 = points_BN3.repeat_interleave(self.offsets, 1) + self.offset_scale * offsets_BM3
        normals_BM3 = self.decoder_normal(moved_BM3, features_BCGGG)
        return moved_BM3.clamp(0.0, _FARTHEST), normals_BM3


class PointEncoder(nn.Module):
    """Maps points (B, N, 3) to features of cells, (B, C, G, G, G) with axes z, y, x."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        width = settings.width
        self.cells = settings.cells
        self.fc_pos = nn.Linear(3, 2 * width)
        self.blocks = nn.ModuleList(ResidualBlock(2 * width, width) for _ in range(settings.blocks))
        self.fc_c = nn.Linear(width, width)
        self.unet3d = UNet(width, settings.levels)

    def forward(self, points_BN3: torch.Tensor) -> torch.Tensor:
        """Pool over each cell between blocks, average over each cell at the end, and let the U-Net mix the cells."""
        cells_BN, count = index_cells(points_BN3, self.cells), self.cells**3
        first, *others = self.blocks
        features_BNC = first(self.fc_pos(place_in_cell(points_BN3, self.cells)))
        for block in others:
            pooled_BNC = local_max(features_BNC, cells_BN, count)
            features_BNC = block(torch.cat([features_BNC, pooled_BNC], 2))
        means_BCG = cell_means(self.fc_c(features_BNC), cells_BN, count)
        mixed_BCGGG: torch.Tensor = self.unet3d(means_BCG.reshape(*means_BCG.shape[:2], *(self.cells,) * 3))
        return mixed_BCGGG


class PointDecoder(nn.Module):
    """Maps points (B, N, 3) and features of cells to `outputs` vectors for each point, (B, N x outputs, 3).

    With `cells`, the network sees a point's place in its cell, else its place in the cube.
    """

    def __init__(self, settings: ModelSettings, *, outputs: int, cells: int | None) -> None:
        super().__init__()
        width = settings.width
        self.cells = cells
        self.fc_c = nn.ModuleList(nn.Linear(width, width) for _ in range(settings.blocks))
        self.fc_p = nn.Linear(3, width)
        self.blocks = nn.ModuleList(ResidualBlock(width, width) for _ in range(settings.blocks))
        self.fc_out = nn.Linear(width, 3 * outputs)

    def forward(self, points_BN3: torch.Tensor, features_BCGGG: torch.Tensor) -> torch.Tensor:
        """Add the features of a point's place before each block."""
        features_BNC = interpolate_features(features_BCGGG, points_BN3)
        hidden_BNC = self.fc_p(place_in_cell(points_BN3, self.cells) if self.cells else points_BN3)
        for mix, block in zip(self.fc_c, self.blocks, strict=True):
            hidden_BNC = block(hidden_BNC + mix(features_BNC))
        vectors_BNO: torch.Tensor = self.fc_out(hidden_BNC.relu())
        return vectors_BNO.reshape(points_BN3.shape[0], -1, 3)


class ResidualBlock(nn.Module):
    """Two linear layers with a ReLU before each, and a shortcut, which is linear where the width changes."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.fc_0 = nn.Linear(before, after)
        self.fc_1 = nn.Linear(after, after)
        self.shortcut = nn.Identity() if before == after else nn.Linear(before, after, bias=False)
        nn.init.zeros_(self.fc_1.weight)

    def forward(self, x_BNC: torch.Tensor) -> torch.Tensor:
        """Map (B, N, before) to (B, N, after)."""
        branch_BNC = self.fc_1(self.fc_0(x_BNC.relu()).relu())
        sum_BNC: torch.Tensor = self.shortcut(x_BNC) + branch_BNC
        return sum_BNC


def place_in_cell(points_BN3: torch.Tensor, cells: int) -> torch.Tensor:
    """Return each point's place in its cell, from 0 to 1 along each axis, (B, N, 3)."""
    return (points_BN3 * cells).remainder(1)
