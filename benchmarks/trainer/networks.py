"""ResNet-50 and a small transformer, for the benchmarks on a GPU."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

# Shape legend: B batch, C channels, H height, W width, K classes, L tokens, D width of a token, V vocabulary.
STAGES = ((3, 64), (4, 128), (6, 256), (3, 512))
EXPANSION = 4
CLASSES = 1000


class Bottleneck(nn.Module):
    """1 x 1, 3 x 3 and 1 x 1 convolutions beside a shortcut (He et al. 2016, fig. 5 right; stride in the 3 x 3)."""

    def __init__(self, channels_in: int, width: int, stride: int) -> None:
        super().__init__()
        channels_out = EXPANSION * width
        self.branch = nn.Sequential(
            *convolve(channels_in, width, 1),
            nn.ReLU(inplace=True),
            *convolve(width, width, 3, stride),
            nn.ReLU(inplace=True),
            *convolve(width, channels_out, 1),
        )
        is_same = stride == 1 and channels_in == channels_out
        self.shortcut = nn.Identity() if is_same else nn.Sequential(*convolve(channels_in, channels_out, 1, stride))

    def forward(self, features_BCHW: torch.Tensor) -> torch.Tensor:
        return functional.relu(self.branch(features_BCHW) + self.shortcut(features_BCHW), inplace=True)


class ResNet50(nn.Module):
    """He et al., Deep Residual Learning for Image Recognition (2016), table 1: 25.6 M parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(*convolve(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, padding=1))
        blocks, channels = [], 64
        for number, (depth, width) in enumerate(STAGES):
            for place in range(depth):
                blocks.append(Bottleneck(channels, width, stride=2 if place == 0 and number else 1))
                channels = EXPANSION * width
        self.blocks = nn.Sequential(*blocks)
        self.classifier = nn.Linear(channels, CLASSES)

    def forward(self, images_BCHW: torch.Tensor) -> torch.Tensor:
        logits_BK: torch.Tensor = self.classifier(self.blocks(self.stem(images_BCHW)).mean(dim=(2, 3)))
        return logits_BK


class TransformerBlock(nn.Module):
    """Causal attention and an MLP, each after a layer normalisation."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm, self.mlp_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, tokens_BLD: torch.Tensor) -> torch.Tensor:
        split = self.qkv(self.attention_norm(tokens_BLD)).chunk(3, dim=-1)
        query, key, value = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in split)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        tokens_BLD = tokens_BLD + self.out(mixed.transpose(1, 2).flatten(2))
        changed_BLD: torch.Tensor = tokens_BLD + self.mlp(self.mlp_norm(tokens_BLD))
        return changed_BLD


class Transformer(nn.Module):
    """A small decoder."""

    def __init__(self, *, layers: int, width: int, length: int, vocabulary: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.positions_LD = nn.Parameter(torch.zeros(length, width))
        self.blocks = nn.Sequential(*(TransformerBlock(width, max(1, width // 64)) for _ in range(layers)))
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens_BL: torch.Tensor) -> torch.Tensor:
        logits_BLV: torch.Tensor = self.head(self.blocks(self.embedding(tokens_BL) + self.positions_LD))
        return logits_BLV


def convolve(channels_in: int, channels_out: int, size: int, stride: int = 1) -> tuple[nn.Module, nn.Module]:
    """Make a convolution that keeps the size at stride 1, and its batch normalisation."""
    conv = nn.Conv2d(channels_in, channels_out, size, stride=stride, padding=size // 2, bias=False)
    return conv, nn.BatchNorm2d(channels_out)
