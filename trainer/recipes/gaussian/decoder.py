"""The decoder: an MLP that turns each patch's features into K Gaussians."""

from itertools import pairwise
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional

from trainer.recipes.gaussian.rotations import quaternions_of_6d

# Shape legend: B batch, D features, G patches along a side, K Gaussians of a patch, N = G * G * K, H height, W width,
# V values of a Gaussian, A axes.
GRID = 37
"""Patches along a side: DINOv2's patches of 14 pixels in a picture of 518."""
HIDDEN = (512, 512, 256, 128)
VALUES = 16
"""Raw values of a Gaussian: position 3, scale 3, rotation 6, colour 3, opacity 1."""
_SPREAD = 0.25
_LARGEST_SCALE = 2.0


class Gaussians(NamedTuple):
    """Gaussians of a batch of pictures, in front of a camera at the origin that looks along -z.

    positions (B, N, 3); scales (B, N, 3), the standard deviations along the own axes; rotations (B, N, 4), unit
    quaternions w, x, y, z; colours (B, N, 3) and opacities (B, N) in [0, 1].
    """

    positions: torch.Tensor
    scales: torch.Tensor
    rotations: torch.Tensor
    colours: torch.Tensor
    opacities: torch.Tensor


class GaussianDecoder(nn.Module):
    """Maps features and depth to Gaussians; the names of its weights are those of fresnel's DirectPatchDecoder.

    x and y are the patch's place in [-1, 1] plus a quarter of the raw value, z is `depth_offset` - 2 depth, or, with
    what is near in front, `depth_offset` - 2 (1 - depth). A scale is 0.15 softplus(s + 1), within 1e-6 and 2.
    """

    def __init__(
        self, width: int, *, per_patch: int, dropout: float, upright: bool = True, near_in_front: bool = False
    ) -> None:
        """Make a decoder.

        Args:
            width: D of the features: 384, 768 or 1024 for DINOv2 small, base or large.
            per_patch: K.
            dropout: after each hidden layer.
            upright: the first row of patches is at the top of the picture. False: at the bottom, as in fresnel.
            near_in_front: depth 1 is nearest to the camera. False: farthest from it, as in fresnel.
        """
        super().__init__()
        self.near_in_front = near_in_front
        self.per_patch = per_patch
        self.mlp = PatchMlp(width, per_patch * VALUES, dropout)
        self.depth_offset = nn.Parameter(torch.tensor(-2.0))
        line_G = torch.linspace(-1, 1, GRID)
        self.register_buffer("x_GG", line_G.expand(GRID, GRID).clone(), persistent=False)
        rows_G = -line_G if upright else line_G
        self.register_buffer("y_GG", rows_G[:, None].expand(GRID, GRID).clone(), persistent=False)

    def forward(self, features_BDGG: torch.Tensor, depth_B1HW: torch.Tensor, per_patch: int | None = None) -> Gaussians:
        """Decode a batch; with `per_patch` only the first so many Gaussians of each patch."""
        batch = features_BDGG.shape[0]  # not len(), which the ONNX export would take for a constant
        raw = self.mlp(features_BDGG.permute(0, 2, 3, 1)).reshape(batch, GRID, GRID, self.per_patch, VALUES)
        raw_BGGKV = raw[..., : per_patch or self.per_patch, :].float()
        values_BNV = raw_BGGKV.flatten(1, 3)
        return Gaussians(
            positions=self._place(raw_BGGKV, depth_B1HW),
            scales=(0.15 * functional.softplus(values_BNV[..., 3:6] + 1)).clamp(1e-6, _LARGEST_SCALE),
            rotations=quaternions_of_6d(values_BNV[..., 6:12]),
            colours=values_BNV[..., 12:15].sigmoid(),
            opacities=values_BNV[..., 15].sigmoid(),
        )

    def _place(self, raw_BGGKV: torch.Tensor, depth_B1HW: torch.Tensor) -> torch.Tensor:
        """Return positions, (B, N, 3)."""
        depth_B1GG = functional.interpolate(depth_B1HW.float(), (GRID, GRID), mode="bilinear", align_corners=False)
        depth_B1GG = 1 - depth_B1GG if self.near_in_front else depth_B1GG
        z_BGG1 = (self.depth_offset - 2 * depth_B1GG.squeeze(1)).unsqueeze(-1)
        x_BGGK = self.get_buffer("x_GG")[..., None] + _SPREAD * raw_BGGKV[..., 0]
        y_BGGK = self.get_buffer("y_GG")[..., None] + _SPREAD * raw_BGGKV[..., 1]
        return torch.stack([x_BGGK, y_BGGK, z_BGG1.expand_as(x_BGGK)], -1).flatten(1, 3)


class PatchMlp(nn.Module):
    """Maps (..., D) to (..., outputs) by D-512-512-256-128-outputs with ReLU and dropout."""

    def __init__(self, width: int, outputs: int, dropout: float) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for before, after in pairwise((width, *HIDDEN)):
            layers += [nn.Linear(before, after), nn.ReLU(), nn.Dropout(dropout)]
        self.net = nn.Sequential(*layers, nn.Linear(HIDDEN[-1], outputs))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Map the last dimension."""
        mapped: torch.Tensor = self.net(values)
        return mapped
