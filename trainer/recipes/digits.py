"""Handwritten digits, 8 x 8 pixels: a small ResNet that reaches 97% in seconds on a CPU.

Data: the test set of UCI's "Optical Recognition of Handwritten Digits", 1,797 images, which
scikit-learn carries (sklearn.datasets.load_digits); nothing is downloaded.
Model: residual blocks of He et al., Deep Residual Learning (2016), fig. 5 left.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional

from trainer.base.config import OptimizerSettings, ScheduleSettings, Settings
from trainer.base.recipe import Recipe, Workload
from trainer.base.setting import setting
from trainer.base.sources import Batch

# Shape legend: B batch, C channels, H height, W width, K classes.
CLASSES = 10
VALIDATION_IMAGES = 360
SPLIT_SEED = 20_260_101  # the split is part of the task: it doesn't change with the run's seed


@dataclass(frozen=True, slots=True, kw_only=True)
class DigitsModelSettings:
    """The network's size. `width` is the channels of the first stage."""

    width: int = setting(24, "channels of the first stage", minimum=1)
    dropout: float = setting(0.1, "share of features that are dropped before the classifier", minimum=0, below=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class DigitsDataSettings:
    """Augmentation. `shift_pixels` is the largest random shift in each direction."""

    shift_pixels: int = setting(1, "the largest random shift in each direction", minimum=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class DigitsSettings(Settings):
    """All settings of this recipe."""

    model: DigitsModelSettings = field(default_factory=DigitsModelSettings)
    data: DigitsDataSettings = field(default_factory=DigitsDataSettings)


def recipe() -> Recipe[DigitsSettings]:
    """Return the default configuration."""
    settings = DigitsSettings(
        epochs=12,
        batch_size=64,
        optimizer=OptimizerSettings(learning_rate=4e-3, weight_decay=0.02),
        schedule=ScheduleSettings(warmup_steps=20),
    )
    return Recipe(settings=settings, build=build_workload)


def build_workload(settings: DigitsSettings) -> Workload:
    """Build the model and the data from the settings."""
    train, validation = load_split()
    images_BCHW = torch.stack([validation.sample(index, np.random.default_rng(0))[0] for index in range(8)])
    model = SmallResNet(width=settings.model.width, dropout=settings.model.dropout)
    return Workload(
        model=model,
        train_data=ShiftedDigits(train, shift_pixels=settings.data.shift_pixels),
        validation_data=validation,
        loss=mean_cross_entropy,
        metrics=measure,
        best="accuracy",
        best_is="max",
        export_inputs=(images_BCHW,),
        blocks=list(model.blocks),
        data="UCI Optical Recognition of Handwritten Digits (CC BY 4.0), the 1,797 images that scikit-learn carries",
    )


class Digits:
    """Images scaled to [0, 1] with their classes; a sample is (image_CHW, label)."""

    def __init__(self, images_BHW: NDArray[np.float64], labels_B: NDArray[np.int64]) -> None:
        self.images_BCHW = torch.from_numpy(images_BHW.astype(np.float32) / 16.0).unsqueeze(1)
        self.labels_B = torch.from_numpy(labels_B.astype(np.int64))

    def __len__(self) -> int:
        """Count the images."""
        return len(self.labels_B)

    def sample(self, index: int, rng: np.random.Generator) -> Batch:  # noqa: ARG002
        """Return an image (1, 8, 8) and its class, without randomness."""
        return self.images_BCHW[index], self.labels_B[index]


class ShiftedDigits:
    """Digits moved by a random whole number of pixels, the empty border filled with background."""

    def __init__(self, digits: Digits, *, shift_pixels: int) -> None:
        self._digits = digits
        self._shift_pixels = shift_pixels

    def __len__(self) -> int:
        """Count the images."""
        return len(self._digits)

    def sample(self, index: int, rng: np.random.Generator) -> Batch:
        """Return a shifted image (1, 8, 8) and its class."""
        image_CHW, label = self._digits.sample(index, rng)
        return shift_image(image_CHW, *self._draw_shift(rng)), label

    def _draw_shift(self, rng: np.random.Generator) -> tuple[int, int]:
        down, right = rng.integers(-self._shift_pixels, self._shift_pixels, size=2, endpoint=True)
        return int(down), int(right)


def shift_image(image_CHW: torch.Tensor, down: int, right: int) -> torch.Tensor:
    """Shift an image by whole pixels; pixels that leave the frame are lost, pixels that enter are 0."""
    reach = max(abs(down), abs(right))
    if not reach:
        return image_CHW
    _, height, width = image_CHW.shape
    padded_CHW = functional.pad(image_CHW, (reach, reach, reach, reach))
    top, left = reach - down, reach - right
    return padded_CHW[:, top : top + height, left : left + width]


def load_split() -> tuple[Digits, Digits]:
    """Load the images as (training, validation): 1,437 and 360 of them, always the same ones."""
    data = load_digits()
    order = np.random.default_rng(SPLIT_SEED).permutation(len(data.target))
    held_out, used = order[:VALIDATION_IMAGES], order[VALIDATION_IMAGES:]
    return Digits(data.images[used], data.target[used]), Digits(data.images[held_out], data.target[held_out])


class SmallResNet(nn.Module):
    """A stem, three residual blocks at 8 x 8 and 4 x 4 pixels, and a linear classifier."""

    def __init__(self, *, width: int, dropout: float) -> None:
        super().__init__()
        self.stem = nn.Sequential(conv3x3(1, width), nn.BatchNorm2d(width), nn.ReLU())
        self.blocks = nn.Sequential(
            ResidualBlock(width, width),
            ResidualBlock(width, 2 * width, stride=2),
            ResidualBlock(2 * width, 2 * width),
        )
        self.dropout = nn.Dropout(dropout)
        self.classifier = nn.Linear(2 * width, CLASSES)

    def forward(self, images_BCHW: torch.Tensor) -> torch.Tensor:
        """Map images (B, 1, 8, 8) to logits (B, 10)."""
        features_BCHW = self.blocks(self.stem(images_BCHW))
        features_BC = features_BCHW.mean(dim=(2, 3))
        logits_BK: torch.Tensor = self.classifier(self.dropout(features_BC))
        return logits_BK


class ResidualBlock(nn.Module):
    """Two 3 x 3 convolutions around a shortcut, which is 1 x 1 where the shape changes."""

    def __init__(self, channels_in: int, channels_out: int, *, stride: int = 1) -> None:
        super().__init__()
        self.branch = nn.Sequential(
            conv3x3(channels_in, channels_out, stride=stride),
            nn.BatchNorm2d(channels_out),
            nn.ReLU(),
            conv3x3(channels_out, channels_out),
            nn.BatchNorm2d(channels_out),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels_in != channels_out:
            self.shortcut = nn.Conv2d(channels_in, channels_out, kernel_size=1, stride=stride, bias=False)

    def forward(self, features_BCHW: torch.Tensor) -> torch.Tensor:
        """Map (B, in, H, W) to (B, out, H / stride, W / stride)."""
        return functional.relu(self.branch(features_BCHW) + self.shortcut(features_BCHW))


def conv3x3(channels_in: int, channels_out: int, *, stride: int = 1) -> nn.Conv2d:
    """Make a 3 x 3 convolution that keeps the size at stride 1; a normalisation follows, so no bias."""
    return nn.Conv2d(channels_in, channels_out, kernel_size=3, stride=stride, padding=1, bias=False)


def mean_cross_entropy(model: nn.Module, batch: Batch) -> torch.Tensor:
    """Compute the batch's mean cross-entropy, a scalar."""
    images_BCHW, labels_B = batch
    return functional.cross_entropy(model(images_BCHW), labels_B)


def measure(model: nn.Module, batch: Batch) -> Mapping[str, torch.Tensor]:
    """Compute every sample's cross-entropy and whether its class is right, each (B,)."""
    images_BCHW, labels_B = batch
    logits_BK = model(images_BCHW)
    return {
        "loss": functional.cross_entropy(logits_BK, labels_B, reduction="none"),
        "accuracy": (logits_BK.argmax(dim=1) == labels_B).float(),
    }
