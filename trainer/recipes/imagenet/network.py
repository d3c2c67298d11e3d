"""ResNets with torchvision's names.

He et al. 2016 (arXiv:1512.03385), with the stride in the 3x3 convolution (Goyal et al. 2017, arXiv:1706.02677,
section 5.1; torchvision's and NVIDIA's "version 1.5").
"""

from collections import OrderedDict
from typing import Literal

import torch
from torch import nn

# Shape legend: B batch, C channels, H height, W width, K classes.


def resnet(depth: Literal[50, 18], classes: int) -> nn.Sequential:
    """Make a ResNet with torchvision's names: (B, 3, H, W) -> scores (B, K)."""
    counts, factor, before = ((3, 4, 6, 3), 4, 64) if depth == 50 else ((2, 2, 2, 2), 1, 64)
    parts = OrderedDict(conv1=conv(3, 64, 7, 2), bn1=nn.BatchNorm2d(64), relu=nn.ReLU(), maxpool=nn.MaxPool2d(3, 2, 1))
    for number, count in enumerate(counts):
        width = 64 << number
        blocks = [Block(before, width, factor, stride=2 if number else 1)]
        blocks += [Block(width * factor, width, factor, stride=1) for _ in range(count - 1)]
        parts[f"layer{number + 1}"] = nn.Sequential(*blocks)
        before = width * factor
    parts |= {"avgpool": nn.AdaptiveAvgPool2d(1), "flatten": nn.Flatten(), "fc": nn.Linear(before, classes)}
    return nn.Sequential(parts)


class Block(nn.Sequential):
    """Convolutions of 1, 3 and 1 (50 layers; the last is four times as wide) or of 3 and 3 pixels, and a shortcut."""

    def __init__(self, before: int, width: int, factor: int, stride: int) -> None:
        super().__init__()
        kernels = (1, 3, 1) if factor > 1 else (3, 3)
        channels = [before, *[width] * (len(kernels) - 1), width * factor]
        for i, kernel in enumerate(kernels):
            self.add_module(f"relu{i}", nn.ReLU() if i else nn.Identity())
            layer = conv(channels[i], channels[i + 1], kernel, stride if i == kernels.index(3) else 1)
            self.add_module(f"conv{i + 1}", layer)
            self.add_module(f"bn{i + 1}", norm := nn.BatchNorm2d(channels[i + 1]))
        # A block starts as its shortcut (Goyal et al. 2017, section 5.1).
        nn.init.zeros_(norm.weight)
        is_same = stride == 1 and before == width * factor
        shortcut = [] if is_same else [conv(before, channels[-1], 1, stride), nn.BatchNorm2d(channels[-1])]
        self.downsample = nn.Sequential(*shortcut)

    def forward(self, x_BCHW: torch.Tensor) -> torch.Tensor:
        """Return the sum of the convolutions and the shortcut, which is the last part."""
        shortcut_BCHW = self.downsample(x_BCHW)
        for layer in list(self)[:-1]:
            x_BCHW = layer(x_BCHW)
        return nn.functional.relu(x_BCHW + shortcut_BCHW)


def conv(before: int, after: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    """Make a convolution, initialised as in He et al. 2015 (arXiv:1502.01852)."""
    layer = nn.Conv2d(before, after, kernel, stride, padding=kernel // 2, bias=False)
    nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return layer
