"""The point-voxel network that predicts noise; sizes and names of pfriedri/pcdiff-implant (PVCNN2, 27,648,963 weights).

Down, a level has voxel convolutions, then a set abstraction; up, an interpolation, then voxel convolutions. The step's
embedding is appended to the features at every level but the first one down.
"""

import math

import torch
from torch import nn

from trainer.recipes.pcdiff.layers import Attention, FeaturePropagation, PVConv, SetAbstraction, SharedMLP
from trainer.recipes.pcdiff.settings import ModelSettings

# Shape legend: B batch, C channels, E channels of the embedding, N points, S points of the skull, I of the implant.
# Of each level down: channels of its voxel convolutions, how many there are, the grid's side, the perceptron's
# channels, and how many points there are to a center. From the second level on there is one convolution, although the
# original's tables say 3: its loop adds the first one only, and its checkpoints have that many.
_DOWN = ((32, 2, 32, (32, 64), 3), (64, 1, 16, (64, 128), 12), (128, 1, 8, (128, 256), 48))
_DEEPEST = ((256, 256, 512), 192)
# Of each level up: the perceptron's channels, those of the voxel convolutions, how many, and the grid's side.
_UP: tuple[tuple[tuple[int, ...], int, int, int], ...] = (
    ((256, 256), 256, 3, 8),
    ((256, 256), 256, 3, 8),
    ((256, 128), 128, 2, 16),
    ((128, 128, 64), 64, 2, 32),
)
_CLASSIFIER = 128


class PointVoxelNet(nn.Module):
    """Predicts the noise in the implant's points from all points and the step."""

    def __init__(self, settings: ModelSettings, *, points: int) -> None:
        super().__init__()
        self.embedding = settings.embedding
        self.sa_layers, skipped = _make_down(settings, points)
        deepest = skipped.pop()
        self.global_att = Attention(deepest, dimensions=1) if settings.attention else None
        self.fp_layers, width = _make_up(settings, deepest, skipped)
        wide = _widen(_CLASSIFIER, settings)
        self.classifier = nn.Sequential(SharedMLP(width, [wide]), nn.Dropout(0.5), nn.Conv1d(wide, 3, 1))
        embedding = settings.embedding
        self.embedf = nn.Sequential(nn.Linear(embedding, embedding), nn.LeakyReLU(0.1), nn.Linear(embedding, embedding))

    def forward(self, skull_BS3: torch.Tensor, implant_BI3: torch.Tensor, step_B: torch.Tensor) -> torch.Tensor:
        """Return the noise in the implant's points, (B, I, 3)."""
        coords_B3N = torch.cat([skull_BS3, implant_BI3], 1).transpose(1, 2).contiguous()
        embedded_BE = embed_steps(step_B, self.embedding).to(next(self.parameters()).dtype)
        embedded_BE1 = self.embedf(embedded_BE)[:, :, None]
        features_BCN, levels = self._go_down(coords_B3N, embedded_BE1)
        coords_B3M = levels.pop()[1]
        features_BCN = features_BCN if self.global_att is None else self.global_att(features_BCN)
        for level in self.fp_layers:
            skipped_BCN, coords_B3N = levels.pop()
            propagate, *convolutions = level.children()
            features_BCN = propagate(_append(features_BCN, embedded_BE1), coords_B3M, skipped_BCN, coords_B3N)
            for convolution in convolutions:
                features_BCN = convolution(features_BCN, coords_B3N)
            coords_B3M = coords_B3N
        # Normalisation is over the points of both.
        noise_BI3: torch.Tensor = self.classifier(features_BCN)[:, :, skull_BS3.shape[1] :].transpose(1, 2)
        return noise_BI3

    def _go_down(
        self, coords_B3N: torch.Tensor, embedded_BE1: torch.Tensor
    ) -> tuple[torch.Tensor, list[tuple[torch.Tensor, torch.Tensor]]]:
        """Return the deepest features, and features (the points have none) and coordinates of all levels."""
        features_BCN = coords_B3N
        levels = [(features_BCN[:, :0], coords_B3N)]
        for number, level in enumerate(self.sa_layers):
            *convolutions, abstraction = level.children() if isinstance(level, nn.ModuleList) else [level]
            features_BCN = _append(features_BCN, embedded_BE1) if number else features_BCN
            for convolution in convolutions:
                features_BCN = convolution(features_BCN, coords_B3N)
            features_BCN, coords_B3N = abstraction(features_BCN, coords_B3N)
            levels.append((features_BCN, coords_B3N))
        return features_BCN, levels

    def list_blocks(self) -> list[nn.Module]:
        """List the parts that recompute their activations (`compute.gradient_checkpointing`)."""
        return [part for part in self.modules() if isinstance(part, (PVConv, SetAbstraction, FeaturePropagation))]


def embed_steps(step_B: torch.Tensor, channels: int) -> torch.Tensor:
    """Return sines, then cosines, of frequencies from 1 to 1/10,000: (B, E), as in Ho et al. 2020's code."""
    half = channels // 2
    number_E = torch.arange(half, dtype=torch.float64, device=step_B.device)
    rate_E = torch.exp(number_E * (-math.log(10_000) / max(1, half - 1)))
    angle_BE = step_B[:, None] * rate_E
    return torch.cat([angle_BE.sin(), angle_BE.cos()], 1)


def _make_down(settings: ModelSettings, points: int) -> tuple[nn.ModuleList, list[int]]:
    """Make the levels down, and list the channels that each passes on, the points' own (none) first."""
    levels: list[nn.Module] = []
    skipped, before = [0], 3
    for number, (channels, count, side, after, thinning) in enumerate(_DOWN):
        width, extra = _widen(channels, settings), settings.embedding if number else 0
        has_attention = settings.attention and number == 1
        first = _make_convolution(settings, before + extra, width, side, has_attention=has_attention)
        rest = [_make_convolution(settings, width, width, side) for _ in range(count - 1)]
        abstraction = _make_abstraction(settings, width, after, points // thinning, level=number)
        levels.append(nn.ModuleList([first, *rest, abstraction]))
        before = _widen(after[-1], settings)
        skipped.append(before)
    deepest, thinning = _DEEPEST
    before += settings.embedding
    levels.append(_make_abstraction(settings, before, deepest, points // thinning, level=len(_DOWN)))
    return nn.ModuleList(levels), [*skipped, _widen(deepest[-1], settings)]


def _make_convolution(
    settings: ModelSettings, before: int, after: int, side: int, *, has_attention: bool = False
) -> PVConv:
    side = round(side * settings.voxels)
    return PVConv(before, after, side=side, dropout=settings.dropout, has_attention=has_attention)


def _make_abstraction(
    settings: ModelSettings, before: int, after: tuple[int, ...], centers: int, *, level: int
) -> SetAbstraction:
    widths = [_widen(width, settings) for width in after]
    return SetAbstraction(
        before,
        widths,
        centers=max(1, centers),
        radius=settings.radius * 2**level,
        neighbours=settings.neighbours,
        is_ordered=level > 0,
    )


def _make_up(settings: ModelSettings, before: int, skipped: list[int]) -> tuple[nn.ModuleList, int]:
    """Make the levels up; `skipped` has the channels of the features from the way down, the deepest last."""
    levels = []
    for (after, channels, count, side), beside in zip(_UP, reversed(skipped), strict=True):
        widths, width = [_widen(each, settings) for each in after], _widen(channels, settings)
        propagation = FeaturePropagation(before + beside + settings.embedding, widths)
        convolutions = [_make_convolution(settings, width, width, side) for _ in range(count)]
        levels.append(nn.ModuleList([propagation, *convolutions]))
        before = width
    return nn.ModuleList(levels), before


def _widen(channels: int, settings: ModelSettings) -> int:
    return int(channels * settings.width)


def _append(features_BCN: torch.Tensor, embedded_BE1: torch.Tensor) -> torch.Tensor:
    return torch.cat([features_BCN, embedded_BE1.to(features_BCN.dtype).expand(-1, -1, features_BCN.shape[2])], 1)
