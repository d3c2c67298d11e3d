"""A pinhole camera at the origin that looks along -z, and how it sees Gaussians."""

from typing import NamedTuple

import torch

from trainer.recipes.gaussian.decoder import Gaussians
from trainer.recipes.gaussian.rotations import matrices_of_quaternions

# Shape legend: B batch, N Gaussians.
FOCAL = 0.8
"""The focal length as a share of the picture's side."""
NEAR, FAR = 0.01, 100.0
LARGEST_RADIUS = 64.0
"""Pixels. A Gaussian reaches three standard deviations far, and at most so far."""
_BLUR = 1e-4
"""Pixels squared, added to both variances, so that the inverse exists."""


class Splats(NamedTuple):
    """Gaussians as the camera sees them, sorted by depth, the nearest first; in pixels, x to the right, y downwards.

    centres (B, N, 2): x, y; pixel (column, row) is at exactly these whole numbers.
    conics (B, N, 3): a, b, c of the exponent -(a dx^2 + 2 b dx dy + c dy^2) / 2.
    opacities (B, N): 0 for what the camera doesn't see.
    boxes (B, N, 4): first and last column, first and last row that a Gaussian reaches; without a gradient.
    values (B, N, 4): red, green, blue and depth.
    """

    centres: torch.Tensor
    conics: torch.Tensor
    opacities: torch.Tensor
    boxes: torch.Tensor
    values: torch.Tensor


def project(gaussians: Gaussians, pixels: int) -> Splats:
    """Project Gaussians onto a square picture, to first order around their centres (Zwicker et al. 2001, EWA).

    Gaussians of equal depth stay in their order.
    """
    positions_BN3, depth_BN = gaussians.positions, -gaussians.positions[..., 2]
    order_BN = depth_BN.argsort(dim=1, stable=True)
    depth_BN1 = depth_BN.clamp(min=NEAR).unsqueeze(-1)
    focal = FOCAL * pixels
    flipped_BN2 = positions_BN3[..., :2] * positions_BN3.new_tensor([1.0, -1.0])
    centres_BN2 = focal * flipped_BN2 / depth_BN1 + pixels / 2
    along_x_BN3, along_y_BN3 = _axes(gaussians, flipped_BN2, depth_BN1, focal)
    radii_BN1 = _radii(along_x_BN3.detach(), along_y_BN3.detach()).unsqueeze(-1)
    lowest_BN2, highest_BN2 = (centres_BN2.detach() - radii_BN1).floor(), (centres_BN2.detach() + radii_BN1).floor()
    seen_BN = (depth_BN > NEAR) & (depth_BN < FAR)
    boxes_BN4 = torch.stack([lowest_BN2[..., 0], highest_BN2[..., 0], lowest_BN2[..., 1], highest_BN2[..., 1]], -1)
    return Splats(
        centres=_sort(centres_BN2, order_BN),
        conics=_sort(_conics(along_x_BN3, along_y_BN3), order_BN),
        opacities=_sort(torch.where(seen_BN, gaussians.opacities, 0).unsqueeze(-1), order_BN).squeeze(-1),
        boxes=_sort(boxes_BN4, order_BN),
        values=_sort(torch.cat([gaussians.colours, depth_BN.unsqueeze(-1)], -1), order_BN),
    )


def _axes(
    gaussians: Gaussians, flipped_BN2: torch.Tensor, depth_BN1: torch.Tensor, focal: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return how far the own axes reach along x and along y of the picture, in deviations: (B, N, 3) each."""
    axes_BN33 = matrices_of_quaternions(gaussians.rotations) * gaussians.scales.unsqueeze(-2)
    # x' = f x / d, y' = -f y / d with d = -z: a step along z changes them by f x / d^2 and -f y / d^2.
    slopes_BN2 = flipped_BN2 / depth_BN1
    along_x_BN3 = (axes_BN33[..., 0, :] + slopes_BN2[..., :1] * axes_BN33[..., 2, :]) * (focal / depth_BN1)
    along_y_BN3 = (-axes_BN33[..., 1, :] + slopes_BN2[..., 1:] * axes_BN33[..., 2, :]) * (focal / depth_BN1)
    return along_x_BN3, along_y_BN3


def _conics(along_x_BN3: torch.Tensor, along_y_BN3: torch.Tensor) -> torch.Tensor:
    """Return the inverses of the blurred covariances, (B, N, 3).

    The covariance is A A^T + blur I with the rows x and y in A. Its determinant is computed as
    |x cross y|^2 + blur (|x|^2 + |y|^2) + blur^2 (Lagrange's identity): all terms are positive, while in float32
    xx yy - xy^2 is nothing but rounding for a thin Gaussian.
    """
    xx_BN, xy_BN, yy_BN = _covariances(along_x_BN3, along_y_BN3)
    area_BN: torch.Tensor = torch.linalg.cross(along_x_BN3, along_y_BN3).square().sum(-1)
    determinant_BN = area_BN + _BLUR * (xx_BN + yy_BN) + _BLUR**2
    conics_BN3: torch.Tensor = torch.stack([yy_BN + _BLUR, -xy_BN, xx_BN + _BLUR], -1) / determinant_BN.unsqueeze(-1)
    return conics_BN3


def _radii(along_x_BN3: torch.Tensor, along_y_BN3: torch.Tensor) -> torch.Tensor:
    """Return three standard deviations along the longest axis, at most LARGEST_RADIUS: (B, N)."""
    xx_BN, xy_BN, yy_BN = _covariances(along_x_BN3, along_y_BN3)
    half_BN = (xx_BN + yy_BN) / 2
    largest_BN = half_BN + (((xx_BN - yy_BN) / 2) ** 2 + xy_BN**2).sqrt()
    return (3 * largest_BN.clamp(min=1e-6).sqrt()).clamp(max=LARGEST_RADIUS)


def _covariances(
    along_x_BN3: torch.Tensor, along_y_BN3: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return xx, xy, yy of the projected Gaussians without the blur, (B, N) each."""
    pairs = ((along_x_BN3, along_x_BN3), (along_x_BN3, along_y_BN3), (along_y_BN3, along_y_BN3))
    xx_BN, xy_BN, yy_BN = ((left_BN3 * right_BN3).sum(-1) for left_BN3, right_BN3 in pairs)
    return xx_BN, xy_BN, yy_BN


def _sort(values_BNC: torch.Tensor, order_BN: torch.Tensor) -> torch.Tensor:
    return values_BNC.gather(1, order_BN.unsqueeze(-1).expand(-1, -1, values_BNC.shape[-1]))
