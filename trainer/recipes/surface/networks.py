"""The networks: a 3-D U-Net (v1), with heads for deep supervision (v2), and three U-Nets on nested crops (v3).

The layers, and so the names and shapes of the weights, are those of the original project's checkpoints (the public
repository bshepp/volumen, src_v2/model.py and src_v3/model.py, read in November 2026): no biases before a
normalisation, InstanceNorm with weights, biases only in the 1 x 1 x 1 heads.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import torch
from torch import nn
from torch.nn import functional

from trainer.api import BadRequestError
from trainer.recipes.surface.filters import CHANNELS, Filters

# Shape legend: B batch, C channels, K classes, Z Y X axes of a volume.
CLASSES = 3
Variant = Literal["v1", "v2", "v3"]
_SLOPE = 0.01


def make_network(variant: Variant, *, base_filters: int, depth: int) -> nn.Module:
    """Make a network that maps raw patches (B, 1, Z, Y, X) in [0, 1] to logits (B, 3, Z, Y, X).

    In training, v2 returns a tuple instead: the logits, and those of the heads at 1/2, 1/4, ... of the size.
    """
    if variant == "v3":
        return MultiScaleUNet(base_filters=base_filters, depth=depth)
    return UNet(base_filters=base_filters, depth=depth, is_supervised=variant == "v2", filters=Filters())


def list_blocks(network: nn.Module) -> list[nn.Module]:
    """List the stages of a network, in order, for gradient checkpointing and sharding."""
    nets = [module for module in network.modules() if isinstance(module, UNet)]
    return [stage for net in nets for stage in (net.init_conv, *net.encoders, net.bottleneck, *net.decoders)]


def check_patch(variant: Variant, *, patch: int, depth: int) -> None:
    """Check that a patch can be halved as often as the network does, and leaves more than one voxel to normalise.

    Raises:
        BadRequestError: it can't.
    """
    # v3's smallest crop is a quarter of the patch, and its network has one stage less.
    smallest = 4 * 2**depth if variant == "v3" else 2 ** (depth + 1)
    if patch < smallest or patch % 2**depth:
        raise BadRequestError(
            f"--set data.patch={patch} doesn't fit {variant} with model.depth={depth}",
            why=f"it has to be a multiple of {2**depth}, and at least {smallest}",
            fix=f"--set data.patch={max(smallest, patch // 2**depth * 2**depth)}, or a smaller model.depth",
        )


class ConvPair(nn.Module):
    """Two 3 x 3 x 3 convolutions, each with InstanceNorm and LeakyReLU; keeps the size."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.block = nn.Sequential(*_convolve(before, after), *_convolve(after, after))

    def forward(self, x_BCZYX: torch.Tensor) -> torch.Tensor:
        """Map (B, before, Z, Y, X) to (B, after, Z, Y, X)."""
        features_BCZYX: torch.Tensor = self.block(x_BCZYX)
        return features_BCZYX


class Down(nn.Module):
    """Halves the size with a strided convolution, then a `ConvPair`."""

    def __init__(self, before: int, after: int) -> None:
        super().__init__()
        self.down = nn.Sequential(*_convolve(before, before, kernel=2, stride=2))
        self.conv = ConvPair(before, after)

    def forward(self, x_BCZYX: torch.Tensor) -> torch.Tensor:
        """Map (B, before, Z, Y, X) to (B, after, Z/2, Y/2, X/2)."""
        features_BCZYX: torch.Tensor = self.conv(self.down(x_BCZYX))
        return features_BCZYX


class Up(nn.Module):
    """Doubles the size with a transposed convolution, appends the encoder's features, then a `ConvPair`."""

    def __init__(self, before: int, skipped: int, after: int) -> None:
        super().__init__()
        self.up = nn.ConvTranspose3d(before, before, 2, 2, bias=False)
        self.conv = ConvPair(before + skipped, after)

    def forward(self, x_BCZYX: torch.Tensor, skipped_BCZYX: torch.Tensor) -> torch.Tensor:
        """Map (B, before, Z/2, Y/2, X/2) and (B, skipped, Z, Y, X) to (B, after, Z, Y, X)."""
        features_BCZYX: torch.Tensor = self.conv(torch.cat([self.up(x_BCZYX), skipped_BCZYX], 1))
        return features_BCZYX


class UNet(nn.Module):
    """`depth` stages of f, 2f, 4f, ... channels and a bottleneck, with skip connections.

    Args:
        base_filters: channels f of the first stage.
        depth: stages, without the bottleneck.
        is_supervised: add a 1 x 1 x 1 head to each decoder stage but the last, for training.
        filters: makes the input channels of the raw volume.
    """

    def __init__(self, *, base_filters: int, depth: int, is_supervised: bool, filters: nn.Module) -> None:
        super().__init__()
        widths = [base_filters << stage for stage in range(depth)]
        self.filters = filters
        self.init_conv = ConvPair(CHANNELS, widths[0])
        self.encoders = nn.ModuleList(Down(*pair) for pair in pairwise(widths))
        self.bottleneck = Down(widths[-1], 2 * widths[-1])
        self.decoders = nn.ModuleList(Up(2 * width, width, width) for width in reversed(widths))
        self.final_conv = nn.Conv3d(widths[0], CLASSES, 1)
        if is_supervised:
            self.aux_heads = nn.ModuleList(nn.Conv3d(width, CLASSES, 1) for width in reversed(widths[1:]))

    def forward(self, raw_BCZYX: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
        """Return logits (B, 3, Z, Y, X); in training with the heads' logits, the finest first."""
        skipped = [self.init_conv(self.filters(raw_BCZYX))]
        for encoder in self.encoders:
            skipped.append(encoder(skipped[-1]))
        decoded = [self.bottleneck(skipped[-1])]
        for decoder in self.decoders:
            decoded.append(decoder(decoded[-1], skipped.pop()))
        logits_BKZYX: torch.Tensor = self.final_conv(decoded[-1])
        if not self.training or not hasattr(self, "aux_heads"):
            return logits_BKZYX
        coarse = [head(features) for head, features in zip(self.aux_heads, decoded[1:-1], strict=True)]
        return logits_BKZYX, *reversed(coarse)


class MultiScaleUNet(nn.Module):
    """Three U-Nets: on the patch, on its middle half and on its middle quarter, fused by a 1 x 1 x 1 convolution.

    The logits of the crops are enlarged to the patch's size (trilinear), as in the original: they are a context of the
    middle for each voxel, not predictions at its place. The smallest crop's network has one stage less.
    """

    def __init__(self, *, base_filters: int, depth: int) -> None:
        super().__init__()
        self.filters = Filters()
        self.unet_128 = _branch(base_filters, depth)
        self.unet_64 = _branch(base_filters, depth)
        self.unet_32 = _branch(base_filters, depth - 1)
        self.fusion = nn.Conv3d(3 * CLASSES, CLASSES, 1)

    def forward(self, raw_BCZYX: torch.Tensor) -> torch.Tensor:
        """Return logits (B, 3, Z, Y, X)."""
        features_BCZYX = self.filters(raw_BCZYX)
        logits = [self.unet_128(features_BCZYX)]
        for net, share in ((self.unet_64, 2), (self.unet_32, 4)):
            logits.append(enlarge(net(_middle(features_BCZYX, share)), share))
        logits_BKZYX: torch.Tensor = self.fusion(torch.cat(logits, 1))
        return logits_BKZYX


def enlarge(x_BKZYX: torch.Tensor, factor: int) -> torch.Tensor:
    """Enlarge each axis by linear interpolation, as `interpolate(mode="trilinear", align_corners=False)` does.

    By a matrix for each axis, because the gradient of `interpolate` has no deterministic version on GPUs.
    """
    for axis in (2, 3, 4):
        side = x_BKZYX.shape[axis]
        corners = torch.eye(side, dtype=x_BKZYX.dtype, device=x_BKZYX.device)[:, None]
        weights = functional.interpolate(corners, size=factor * side, mode="linear", align_corners=False)[:, 0]
        x_BKZYX = torch.movedim(x_BKZYX.movedim(axis, -1) @ weights, -1, axis)
    return x_BKZYX


def _convolve(before: int, after: int, *, kernel: int = 3, stride: int = 1) -> Sequence[nn.Module]:
    padding = 1 if kernel == 3 else 0
    return [
        nn.Conv3d(before, after, kernel, stride, padding, bias=False),
        nn.InstanceNorm3d(after, affine=True),
        nn.LeakyReLU(_SLOPE, inplace=True),
    ]


def _branch(base_filters: int, depth: int) -> UNet:
    return UNet(base_filters=base_filters, depth=depth, is_supervised=False, filters=nn.Identity())


def _middle(features_BCZYX: torch.Tensor, share: int) -> torch.Tensor:
    """Cut out the middle 1/share of each axis."""
    for axis in (2, 3, 4):
        size = features_BCZYX.shape[axis]
        features_BCZYX = features_BCZYX.narrow(axis, (size - size // share) // 2, size // share)
    return features_BCZYX
