"""The loss of a rendered picture: L1 of colours, SSIM, L1 of standardised depths, and LPIPS if there are weights."""

from pathlib import Path
from typing import NamedTuple

import torch
from torch.nn import functional

from trainer.checkpoints.remap import find_weights, read_content
from trainer.metrics.images import ssim
from trainer.metrics.lpips import Lpips, build_lpips
from trainer.recipes.gaussian.settings import LossSettings

# Shape legend: B batch, H height, W width.
_LEAST_DEVIATION = 1e-4
_LPIPS_SIDE = 128
"""Pictures are resized to so many pixels, as in fresnel (scripts/training/train_gaussian_decoder.py)."""


class Views(NamedTuple):
    """Pictures in [0, 1], (B, 3, H, W), and their depths, (B, H, W)."""

    images: torch.Tensor
    depth: torch.Tensor


def compare(ours: Views, theirs: Views, settings: LossSettings, lpips: Lpips | None = None) -> torch.Tensor:
    """Compute each picture's loss, (B,); without `lpips` its part is left out."""
    images_B3HW = ours.images.clamp(0, 1)
    loss_B = (ours.images - theirs.images).abs().flatten(1).mean(1)
    if settings.ssim:
        loss_B = loss_B + settings.ssim * (1 - ssim(images_B3HW, theirs.images))
    if settings.depth:
        difference = standardise(ours.depth) - standardise(theirs.depth)
        loss_B = loss_B + settings.depth * difference.abs().flatten(1).mean(1)
    if settings.lpips and lpips is not None:
        loss_B = loss_B + settings.lpips * perceive(lpips, images_B3HW, theirs.images)
    return loss_B


def read_lpips(files: tuple[str, ...]) -> Lpips | None:
    """Read the weights of LPIPS from one or several files of torch.save or safetensors; no code in them is run.

    Raises:
        BadRequestError: a file can't be read, or they don't have all weights.
    """
    if not files:
        return None
    weights = [find_weights(read_content(Path(file))).weights for file in files]
    return build_lpips({name: tensor for each in weights for name, tensor in each.items()}, ", ".join(files))


def perceive(lpips: Lpips, ours_B3HW: torch.Tensor, theirs_B3HW: torch.Tensor) -> torch.Tensor:
    """Compute each picture's LPIPS at 128 x 128 pixels, (B,)."""
    ours_B3HW, theirs_B3HW = (
        functional.interpolate(each, (_LPIPS_SIDE, _LPIPS_SIDE), mode="bilinear", align_corners=False)
        for each in (ours_B3HW, theirs_B3HW)
    )
    distances_B: torch.Tensor = lpips.to(ours_B3HW.device)(ours_B3HW, theirs_B3HW)
    return distances_B


def standardise(depth_BHW: torch.Tensor) -> torch.Tensor:
    """Shift and scale each picture's depths to mean 0 and deviation 1; those of a flat picture are all 0."""
    mean_B11 = depth_BHW.mean((1, 2), keepdim=True)
    deviation_B11 = depth_BHW.std((1, 2), keepdim=True).clamp(min=_LEAST_DEVIATION)
    return (depth_BHW - mean_B11) / deviation_B11


def resize(depth_B1HW: torch.Tensor, pixels: int) -> torch.Tensor:
    """Resize depths to the picture's size, (B, H, W)."""
    return functional.interpolate(depth_B1HW, (pixels, pixels), mode="bilinear", align_corners=False).squeeze(1)
