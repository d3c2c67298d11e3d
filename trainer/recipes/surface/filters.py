"""The six input channels, computed on the device from the raw volume, each standardised within its sample."""

import torch
from torch import nn
from torch.nn import functional

# Shape legend: B batch, C channels, Z Y X axes of a volume, W taps of a kernel.
CHANNELS = 6
SIGMAS = (1.0, 1.5, 2.0, 3.0)
"""Of the Gaussians, in voxels: the differences are 1 - 1.5 and 2 - 3, the derivatives are those of the first."""
RADII = tuple(round(2 * sigma) for sigma in SIGMAS)
"""Kernels end after two standard deviations."""
_SLOPE = (-0.5, 0.0, 0.5)
_CURVATURE = (1.0, -2.0, 1.0)
_LARGEST_RATIO = 20.0
_SMALLEST_DEVIATION = 1e-6


class Filters(nn.Module):
    """Maps raw volumes to raw, two differences of Gaussians, Hessian trace, gradient magnitude, anisotropy |dy| / |dx|.

    Borders are padded with 0, the derivatives are central differences, and the anisotropy ends at 20: the numbers of
    the original project (bshepp/volumen, src_v2/features.py), whose weights expect these channels. It computes in
    float32 under autocast as well: the differences of Gaussians are small against 16 bits.
    """

    gaussian_0: torch.Tensor
    gaussian_1: torch.Tensor
    gaussian_2: torch.Tensor
    gaussian_3: torch.Tensor
    slope: torch.Tensor
    curvature: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        kernels = {f"gaussian_{i}": _gaussian(*pair) for i, pair in enumerate(zip(SIGMAS, RADII, strict=True))}
        kernels |= {"slope": torch.tensor(_SLOPE), "curvature": torch.tensor(_CURVATURE)}
        for name, kernel_W in kernels.items():
            self.register_buffer(name, kernel_W, persistent=False)

    @torch.no_grad()
    def forward(self, raw_BCZYX: torch.Tensor) -> torch.Tensor:
        """Map (B, 1, Z, Y, X) to (B, 6, Z, Y, X), each channel with mean 0 and deviation 1 in each sample."""
        with torch.autocast(raw_BCZYX.device.type, enabled=False):
            return standardize(self.channels(raw_BCZYX.float()))

    def channels(self, raw_BCZYX: torch.Tensor) -> torch.Tensor:
        """Compute the channels as they are before standardisation, (B, 6, Z, Y, X)."""
        kernels = (self.gaussian_0, self.gaussian_1, self.gaussian_2, self.gaussian_3)
        smooth, wider, wide, widest = (_along_all(raw_BCZYX, kernel_W) for kernel_W in kernels)
        dz, dy, dx = (_along(smooth, self.slope, axis) for axis in (2, 3, 4))
        trace_BCZYX = torch.stack([_along(smooth, self.curvature, axis) for axis in (2, 3, 4)]).sum(0)
        size_BCZYX = (dz.square() + dy.square() + dx.square()).sqrt()
        ratio_BCZYX = (dy.abs() / (dx.abs() + 1e-3)).clamp(max=_LARGEST_RATIO)
        return torch.cat([raw_BCZYX, smooth - wider, wide - widest, trace_BCZYX, size_BCZYX, ratio_BCZYX], 1)


def standardize(channels_BCZYX: torch.Tensor) -> torch.Tensor:
    """Subtract each channel's mean over the volume, and divide by its deviation (with n - 1), in each sample."""
    centred_BCZYX = channels_BCZYX - channels_BCZYX.mean((2, 3, 4), keepdim=True)
    voxels = channels_BCZYX.shape[2] * channels_BCZYX.shape[3] * channels_BCZYX.shape[4]
    variance_BC111 = centred_BCZYX.square().sum((2, 3, 4), keepdim=True) / (voxels - 1)
    # A bound, not + 1e-8: the ONNX exporter drops so small a number, and a constant channel would be NaN.
    return centred_BCZYX / variance_BC111.sqrt().clamp(min=_SMALLEST_DEVIATION)


def _gaussian(sigma: float, radius: int) -> torch.Tensor:
    x_W = torch.arange(-radius, radius + 1, dtype=torch.float64)
    weights_W = torch.exp(-0.5 * (x_W / sigma).square())
    return (weights_W / weights_W.sum()).float()


def _along_all(x_BCZYX: torch.Tensor, kernel_W: torch.Tensor) -> torch.Tensor:
    for axis in (2, 3, 4):
        x_BCZYX = _along(x_BCZYX, kernel_W, axis)
    return x_BCZYX


def _along(x_BCZYX: torch.Tensor, kernel_W: torch.Tensor, axis: int) -> torch.Tensor:
    """Correlate a volume with one kernel along one axis, padded with 0.

    By products and sums: a convolution would be rounded to 10 bits where `compute.tf32` is on.
    """
    reach, size = len(kernel_W) // 2, x_BCZYX.shape[axis]
    # The last axis comes first.
    padding = [0, 0] * (4 - axis) + [reach, reach]
    padded_BCZYX = functional.pad(x_BCZYX, padding)
    weights = kernel_W.to(x_BCZYX.dtype)
    total_BCZYX = padded_BCZYX.narrow(axis, 0, size) * weights[0]
    for shift in range(1, len(kernel_W)):
        total_BCZYX = torch.addcmul(total_BCZYX, padded_BCZYX.narrow(axis, shift, size), weights[shift])
    return total_BCZYX
