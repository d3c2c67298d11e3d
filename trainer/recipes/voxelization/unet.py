"""A 3-D U-Net with the names of weights of wolny/pytorch-3dunet's `UNet3D`, layer order "gcr".

Çiçek et al. 2016 (arXiv:1606.06650); group normalisation by Wu and He 2018 (arXiv:1803.08494).
"""

from collections import OrderedDict
from collections.abc import Iterable

import torch
from torch import nn
from torch.nn import functional

# Shape legend: B batch, C channels, G cells a side.
_GROUPS = 8


class UNet(nn.Module):
    """Maps (B, C, G, G, G) to the same shape; G is a multiple of 2^(levels - 1)."""

    def __init__(self, channels: int, levels: int) -> None:
        super().__init__()
        widths = [channels << level for level in range(levels)]
        ins = [channels, *widths[:-1]]
        self.encoders = nn.ModuleList(Level(*_widths_down(*pair)) for pair in zip(ins, widths, strict=True))
        pairs = list(zip(widths[:0:-1], widths[-2::-1], strict=True))
        self.decoders = nn.ModuleList(Level(low + skip, skip, skip) for low, skip in pairs)
        self.final_conv = nn.Conv3d(channels, channels, 1)

    def forward(self, grid_BCGGG: torch.Tensor) -> torch.Tensor:
        """Go down by maxima of 2 x 2 x 2 cells, and up by repeating each cell."""
        skips: list[torch.Tensor] = []
        for number, encoder in enumerate(self.encoders):
            grid_BCGGG = encoder(functional.max_pool3d(grid_BCGGG, 2) if number else grid_BCGGG)
            skips.append(grid_BCGGG)
        for decoder, skip in zip(self.decoders, skips[-2::-1], strict=True):
            grid_BCGGG = decoder(torch.cat([skip, functional.interpolate(grid_BCGGG, scale_factor=2)], 1))
        result_BCGGG: torch.Tensor = self.final_conv(grid_BCGGG)
        return result_BCGGG


class Level(nn.Module):
    """Two convolutions of 3 x 3 x 3, each after a normalisation and followed by a ReLU."""

    def __init__(self, before: int, middle: int, after: int) -> None:
        super().__init__()
        parts = {"SingleConv1": _convolve(before, middle), "SingleConv2": _convolve(middle, after)}
        self.basic_module = nn.Sequential(OrderedDict(parts))

    def forward(self, grid_BCGGG: torch.Tensor) -> torch.Tensor:
        """Map (B, before, G, G, G) to (B, after, G, G, G)."""
        result_BCGGG: torch.Tensor = self.basic_module(grid_BCGGG)
        return result_BCGGG


def list_levels(network: UNet) -> list[nn.Module]:
    """List the levels on the way down, then those on the way up."""
    parts: Iterable[nn.Module] = (*network.encoders, *network.decoders)
    return list(parts)


def _widths_down(before: int, after: int) -> tuple[int, int, int]:
    """Return the channels before, between and after the convolutions of an encoder's level."""
    return before, max(after // 2, before), after


def _convolve(before: int, after: int) -> nn.Sequential:
    groups = _GROUPS if before >= _GROUPS else 1
    layers = {
        "groupnorm": nn.GroupNorm(groups, before),
        "conv": nn.Conv3d(before, after, 3, padding=1, bias=False),
        "ReLU": nn.ReLU(inplace=True),
    }
    return nn.Sequential(OrderedDict(layers))
