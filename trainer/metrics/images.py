"""How alike two pictures are: PSNR, and SSIM (Wang et al. 2004, doi:10.1109/TIP.2003.819861)."""

import math

import torch

# Shape legend: B batch, C channels, H height, W width.
WINDOW = 11
"""SSIM's window has so many pixels a side, and a deviation of 1.5 pixels (Wang et al. 2004, section III.C)."""
_DEVIATION = 1.5
_BELL = [math.exp(-((step - WINDOW // 2) ** 2) / (2 * _DEVIATION**2)) for step in range(WINDOW)]
_TAPS = [value / sum(_BELL) for value in _BELL]
_C1, _C2 = 0.01**2, 0.03**2
_LEAST_ERROR = 1e-10


def psnr(ours_BCHW: torch.Tensor, theirs_BCHW: torch.Tensor) -> torch.Tensor:
    """Compute each picture's peak signal-to-noise ratio in decibels, (B,), at most 100; values are in [0, 1].

    It computes at least in float32.
    """
    error_B = (_widen(ours_BCHW) - _widen(theirs_BCHW)).square().flatten(1).mean(1)
    return -10 * error_B.clamp(min=_LEAST_ERROR).log10()


def ssim(ours_BCHW: torch.Tensor, theirs_BCHW: torch.Tensor) -> torch.Tensor:
    """Compute each picture's structural similarity, (B,): the mean over channels and all places of the window.

    Values are in [0, 1]. The window lies inside of the picture everywhere. Differentiable. It computes at least in
    float32, also under autocast and with TF32: a variance is a small difference of two means.

    Raises:
        ValueError: the pictures are smaller than the window.
    """
    if min(ours_BCHW.shape[-2:]) < WINDOW:
        raise ValueError(f"SSIM needs at least {WINDOW} x {WINDOW} pixels, not {tuple(ours_BCHW.shape[-2:])}")
    ours_BCHW, theirs_BCHW = _widen(ours_BCHW), _widen(theirs_BCHW)
    # Any level may be subtracted before the squares: it leaves the variances as they are, and less to cancel.
    level_BC11 = ((ours_BCHW + theirs_BCHW) / 2).mean((2, 3), keepdim=True).detach()
    x_BCHW, y_BCHW = ours_BCHW - level_BC11, theirs_BCHW - level_BC11
    products = (x_BCHW * x_BCHW, y_BCHW * y_BCHW, x_BCHW * y_BCHW)
    blurred = torch.split(_blur(torch.cat([x_BCHW, y_BCHW, *products])), len(ours_BCHW))
    mean_x, mean_y, square_x, square_y, product = blurred
    variances = square_x - mean_x**2 + square_y - mean_y**2
    covariance = product - mean_x * mean_y
    mean_x, mean_y = mean_x + level_BC11, mean_y + level_BC11
    likeness = (2 * mean_x * mean_y + _C1) / (mean_x**2 + mean_y**2 + _C1)
    likeness = likeness * (2 * covariance + _C2) / (variances + _C2)
    likeness_B: torch.Tensor = likeness.flatten(1).mean(1)
    return likeness_B


def _widen(values: torch.Tensor) -> torch.Tensor:
    return values.to(torch.promote_types(values.dtype, torch.float32))


def _blur(images_BCHW: torch.Tensor) -> torch.Tensor:
    """Return the Gaussian-weighted means of all windows."""
    return _blur_along(_blur_along(images_BCHW, 3), 2)


def _blur_along(images_BCHW: torch.Tensor, axis: int) -> torch.Tensor:
    """Add shifted copies: neither autocast nor TF32 rounds them, as they would a convolution."""
    length = images_BCHW.shape[axis] - WINDOW + 1
    shifted = [images_BCHW.narrow(axis, first, length) for first in range(WINDOW)]
    mean_BCHW = shifted[WINDOW // 2] * _TAPS[WINDOW // 2]
    for step in range(WINDOW // 2):
        mean_BCHW = mean_BCHW.add(shifted[step] + shifted[-1 - step], alpha=_TAPS[step])
    return mean_BCHW
