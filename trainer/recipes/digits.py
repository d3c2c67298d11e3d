"""Handwritten digits, 8 x 8 pixels: a small ResNet that reaches 97% in seconds on a CPU.

Data: the test set of UCI's "Optical Recognition of Handwritten Digits", 1,797 images, which
scikit-learn carries (sklearn.datasets.load_digits); nothing is downloaded.
Model: residual blocks of He et al., Deep Residual Learning (2016), fig. 5 left.
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

from trainer import api

# Shape legend: B batch, C channels, H height, W width.
VALIDATION_IMAGES = 360
SPLIT_SEED = 20_260_101  # the split is part of the task: it doesn't change with the run's seed


@dataclass(frozen=True, slots=True, kw_only=True)
class DigitsModelSettings:
    """The network's size."""

    width: int = api.setting(24, "channels of the first stage", minimum=1)
    dropout: float = api.setting(0.1, "before the classifier", minimum=0, below=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class DigitsSettings(api.Settings):
    """All settings of this recipe."""

    model: DigitsModelSettings = field(default_factory=DigitsModelSettings)
    shift_pixels: int = api.setting(1, "the largest random shift in each direction", minimum=0)


def recipe() -> api.Recipe[DigitsSettings]:
    """Return the default configuration."""
    optimizer = api.OptimizerSettings(learning_rate=4e-3, weight_decay=0.02)
    settings = DigitsSettings(epochs=12, optimizer=optimizer, schedule=api.ScheduleSettings(warmup_steps=20))
    return api.Recipe(settings=settings, build=build_workload)


def build_workload(settings: DigitsSettings) -> api.Workload:
    """Build the model and the data from the settings."""
    (images_BCHW, labels_B), validation = load_split()
    shift = partial(shift_sample, pixels=settings.shift_pixels)
    model = SmallResNet(width=settings.model.width, dropout=settings.model.dropout)
    return api.Workload(
        model=model,
        train_data=api.ArraySource(images_BCHW, labels_B, transform=shift),
        validation_data=api.ArraySource(*validation),
        export_inputs=(validation[0][:8],),
        blocks=list(model.get_submodule("blocks").children()),
        data="UCI Optical Recognition of Handwritten Digits (CC BY 4.0), the 1,797 images that scikit-learn carries",
        **api.CLASSIFICATION,
    )


def load_split() -> tuple[tuple[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]:
    """Load images in [0, 1], (B, 1, 8, 8), and classes, (B,): 1,437 for training and 360 others, always the same."""
    data = load_digits()
    order = np.random.default_rng(SPLIT_SEED).permutation(len(data.target))
    images_BCHW = torch.tensor(data.images[order] / 16, dtype=torch.float32).unsqueeze(1)
    labels_B, held_out = torch.tensor(data.target[order]), VALIDATION_IMAGES
    return (images_BCHW[held_out:], labels_B[held_out:]), (images_BCHW[:held_out], labels_B[:held_out])


def shift_sample(sample: api.Sample, rng: np.random.Generator, *, pixels: int) -> api.Sample:
    """Shift an image (1, 8, 8) by whole pixels; those that leave the frame are lost, those that enter are 0."""
    down, right = rng.integers(2 * pixels, size=2, endpoint=True).tolist()
    return nn.functional.pad(sample[0], (pixels,) * 4)[:, down : down + 8, right : right + 8], sample[1]


def convolve(before: int, after: int, stride: int = 1) -> list[nn.Module]:
    """List the layers of a 3 x 3 convolution that keeps the size at stride 1; the normalisation has the bias."""
    return [nn.Conv2d(before, after, 3, stride, padding=1, bias=False), nn.BatchNorm2d(after)]


class ResidualBlock(nn.Module):
    """Two 3 x 3 convolutions around a shortcut, which is 1 x 1 where the shape changes."""

    def __init__(self, before: int, after: int, stride: int = 1) -> None:
        super().__init__()
        self.branch = nn.Sequential(*convolve(before, after, stride), nn.ReLU(), *convolve(after, after))
        self.shortcut = nn.Identity() if before == after else nn.Conv2d(before, after, 1, stride, bias=False)

    def forward(self, features_BCHW: torch.Tensor) -> torch.Tensor:
        """Map (B, in, H, W) to (B, out, H / stride, W / stride)."""
        return torch.relu(self.branch(features_BCHW) + self.shortcut(features_BCHW))


class SmallResNet(nn.Sequential):
    """Maps images (B, 1, 8, 8) to logits (B, 10): a stem, three residual blocks, and a linear classifier."""

    def __init__(self, *, width: int, dropout: float) -> None:
        sizes = [(width, width, 1), (width, 2 * width, 2), (2 * width, 2 * width, 1)]
        blocks = nn.Sequential(*(ResidualBlock(*size) for size in sizes))
        head = {"pool": nn.AdaptiveAvgPool2d(1), "flat": nn.Flatten(), "dropout": nn.Dropout(dropout)}
        stem = nn.Sequential(*convolve(1, width), nn.ReLU())
        super().__init__(OrderedDict(stem=stem, blocks=blocks, **head, classifier=nn.Linear(2 * width, 10)))
