"""Differentiable Poisson surface reconstruction: from points with normals to a function whose zeros are the surface.

Peng et al. 2021, Shape As Points (arXiv:2106.03452), section 3.1. The data's convention: negative inside, +0.5 far
outside, for normals that point outwards.
"""

import math

import torch
from torch import nn

from trainer.recipes.voxelization.grids import interpolate_periodic, splat

# Shape legend: B batch, N points, G nodes a side, H = G / 2 + 1 frequencies of the last axis.
_SMALLEST = 1e-12


class PoissonSolver(nn.Module):
    """Solves Laplace(f) = div(normals) on a periodic grid over the unit cube, smoothed.

    It has no weights, and nothing of it is in a checkpoint.
    """

    def __init__(self, size: int, *, sigma: float) -> None:
        super().__init__()
        self.size = size
        self.filter_GGH: torch.Tensor
        self.whole_G: torch.Tensor
        self.half_H: torch.Tensor
        whole_G = torch.fft.fftfreq(size, 1 / size, dtype=torch.float64)
        half_H = torch.fft.rfftfreq(size, 1 / size, dtype=torch.float64)
        square_GGH = whole_G[:, None, None] ** 2 + whole_G[:, None] ** 2 + half_H**2
        # Equation 5: exp(-2 sigma^2 |u|^2 / r^2). The mean, at frequency 0, is subtracted later.
        filter_GGH = torch.exp(-2 * (sigma / size) ** 2 * square_GGH) / square_GGH.clamp(min=1) / (2 * math.pi)
        self.register_buffer("filter_GGH", filter_GGH.float(), persistent=False)
        self.register_buffer("whole_G", _drop_nyquist(whole_G, size).float(), persistent=False)
        self.register_buffer("half_H", _drop_nyquist(half_H, size).float(), persistent=False)

    def forward(self, points_BN3: torch.Tensor, normals_BN3: torch.Tensor) -> torch.Tensor:
        """Return the function at the nodes i / G, (B, G, G, G): its mean is 0 at the points, its corner +-0.5."""
        if points_BN3.dtype != torch.float64:  # under autocast: no Fourier transform of half precision
            points_BN3, normals_BN3 = points_BN3.float(), normals_BN3.float()
        raw_BGGG = self.integrate(splat(points_BN3, normals_BN3, self.size))
        at_points_BN = interpolate_periodic(raw_BGGG[:, None], points_BN3).squeeze(-1)
        shifted_BGGG = raw_BGGG - at_points_BN.mean(1)[:, None, None, None]
        corner_B = shifted_BGGG[:, 0, 0, 0].abs().clamp(min=_SMALLEST)
        return 0.5 * shifted_BGGG / corner_B[:, None, None, None]

    def integrate(self, field_B3GGG: torch.Tensor) -> torch.Tensor:
        """Return the function with mean 0 whose gradient is nearest to a vector field, smoothed, (B, G, G, G).

        In Fourier space f = -i (u . v) / (2 pi |u|^2), with u in cycles per unit length.
        """
        x, y, z = (torch.fft.rfftn(part, dim=(1, 2, 3)) for part in field_B3GGG.unbind(1))
        along_BGGH = x * self.whole_G[:, None, None] + y * self.whole_G[:, None] + z * self.half_H
        raw_BGGG: torch.Tensor = torch.fft.irfftn(along_BGGH * self.filter_GGH * -1j, s=(self.size,) * 3, dim=(1, 2, 3))
        return raw_BGGG


def _drop_nyquist(frequencies: torch.Tensor, size: int) -> torch.Tensor:
    """Set half the sampling frequency to 0: a real signal has no derivative there (its sine is 0 at all nodes)."""
    return torch.where(frequencies.abs() * 2 == size, 0.0, frequencies)
