"""ImageNet classification from folders of pictures: a ResNet-50 with torchvision's weight names, 90 epochs of SGD.

The network is He et al. 2016 (arXiv:1512.03385) with the stride in the 3x3 convolution, the recipe Goyal et al. 2017
(arXiv:1706.02677), with label smoothing from Szegedy et al. 2016 (arXiv:1512.00567).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.nn import functional

from trainer.api import Batch, ComputeSettings, OptimizerSettings, Recipe, ScheduleSettings, Settings, Workload, setting

# Shape legend: B batch, C channels, H height, W width, K classes.
MEAN_C = np.array([0.485, 0.456, 0.406], dtype=np.float32)
DEVIATION_C = np.array([0.229, 0.224, 0.225], dtype=np.float32)
SUFFIXES = (".jpeg", ".jpg", ".png")


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSettings:
    """The pictures."""

    folder: str = setting("", "has train/CLASS/*.jpeg and val/CLASS/*.jpeg (also .jpg, .png)")
    pixels: int = setting(224, "side of the square that the network sees", minimum=32)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """The network."""

    depth: Literal[50, 18] = setting(50, "layers of the ResNet")


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageNetSettings(Settings):
    """All settings of this recipe."""

    data: DataSettings = field(default_factory=DataSettings)
    model: ModelSettings = field(default_factory=ModelSettings)


def recipe() -> Recipe[ImageNetSettings]:
    """Return the default configuration: Goyal et al. 2017, for 256 pictures a step; the warm-up is 5 epochs."""
    return Recipe(
        settings=ImageNetSettings(
            epochs=90,
            batch_size=256,
            workers=8,
            optimizer=OptimizerSettings(
                name="sgd", learning_rate=0.1, scaling="linear", base_batch=256, weight_decay=1e-4, clip_norm=0.0
            ),
            schedule=ScheduleSettings(name="cosine", warmup_steps=25_000, final=0.0),
            compute=ComputeSettings(channels_last=True),
        ),
        build=build_workload,
    )


def build_workload(settings: ImageNetSettings) -> Workload:
    """Make the ResNet for the classes that train/ has."""
    folder, pixels = Path(settings.data.folder), settings.data.pixels
    classes = sorted(path.name for path in (folder / "train").glob("*") if path.is_dir())
    if not settings.data.folder or not classes:
        raise ValueError(f"data.folder={settings.data.folder!r} has no folders train/CLASS")
    model = ResNet(settings.model.depth, len(classes))
    return Workload(
        model=model,
        train_data=Pictures(folder / "train", classes, pixels, augment=True),
        validation_data=Pictures(folder / "val", classes, pixels, augment=False),
        loss=lambda model, batch: functional.cross_entropy(model(batch[0]), batch[1], label_smoothing=0.1),
        metrics=measure,
        best="top1",
        best_is="max",
        blocks=[block for layer in model.layers() for block in layer],
        export_inputs=(torch.zeros(2, 3, pixels, pixels),),
        data=f"ImageNet's layout of folders, {len(classes)} classes",
    )


def measure(model: nn.Module, batch: Batch) -> Mapping[str, torch.Tensor]:
    """Compute every picture's cross-entropy (without smoothing), and whether it is in the top 1 and 5, each (B,)."""
    scores_BK, labels_B = model(batch[0]), batch[1]
    is_hit_B5 = scores_BK.topk(min(5, scores_BK.shape[1])).indices == labels_B[:, None]
    return {
        "loss": functional.cross_entropy(scores_BK, labels_B, reduction="none"),
        "top1": is_hit_B5[:, 0].float(),
        "top5": is_hit_B5.any(1).float(),
    }


class Pictures:
    """Pictures in one folder per class, cropped at random for training, else in the middle."""

    def __init__(self, folder: Path, classes: Sequence[str], pixels: int, *, augment: bool) -> None:
        self._files = [
            (str(path), label)
            for label, name in enumerate(classes)
            for path in sorted((folder / name).glob("*"))
            if path.suffix.lower() in SUFFIXES
        ]
        if not self._files:
            raise ValueError(f"{folder} has no pictures: {', '.join(SUFFIXES)}")
        self._pixels = pixels
        self._augment = augment

    def __len__(self) -> int:
        """Count the pictures."""
        return len(self._files)

    def sample(self, index: int, rng: np.random.Generator) -> Batch:
        """Return a normalised picture, (3, H, W), and its class."""
        path, label = self._files[index]
        with Image.open(path) as file:
            picture = file.convert("RGB")
        square = random_square(picture, self._pixels, rng) if self._augment else middle_square(picture, self._pixels)
        pixels_HWC = (np.asarray(square, dtype=np.float32) / 255 - MEAN_C) / DEVIATION_C
        return torch.from_numpy(pixels_HWC).permute(2, 0, 1).contiguous(), torch.tensor(label)


def random_square(picture: Image.Image, pixels: int, rng: np.random.Generator) -> Image.Image:
    """Cut out a rectangle of 8% to 100% of the area and ratio 3/4 to 4/3 (arXiv:1409.4842), and mirror half of them.

    If ten rectangles don't fit, it is the largest one in the middle with an admissible ratio, as in torchvision.
    """
    width, height = picture.size
    for _ in range(10):
        area, ratio = width * height * rng.uniform(0.08, 1), np.exp(rng.uniform(np.log(3 / 4), np.log(4 / 3)))
        w, h = round(np.sqrt(area * ratio)), round(np.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            left, top = int(rng.integers(width - w + 1)), int(rng.integers(height - h + 1))
            break
    else:
        w, h = min(width, round(height * 4 / 3)), min(height, round(width * 4 / 3))
        left, top = (width - w) // 2, (height - h) // 2
    square = picture.crop((left, top, left + w, top + h)).resize((pixels, pixels), Image.Resampling.BILINEAR)
    return square.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if rng.random() < 0.5 else square


def middle_square(picture: Image.Image, pixels: int) -> Image.Image:
    """Resize the shorter side to 256/224 of the square's, and cut out the middle."""
    scale = round(pixels * 256 / 224) / min(picture.size)
    width, height = round(picture.width * scale), round(picture.height * scale)
    left, top = (width - pixels) // 2, (height - pixels) // 2
    resized = picture.resize((width, height), Image.Resampling.BILINEAR)
    return resized.crop((left, top, left + pixels, top + pixels))


class ResNet(nn.Module):
    """A ResNet of 18 or 50 layers, with torchvision's names of the weights."""

    def __init__(self, depth: Literal[50, 18], classes: int) -> None:
        super().__init__()
        counts, factor = ((3, 4, 6, 3), 4) if depth == 50 else ((2, 2, 2, 2), 1)
        self.conv1 = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        before = 64
        for number, count in enumerate(counts):
            width = 64 << number
            strides = [1 if number == 0 else 2] + [1] * (count - 1)
            blocks = [Block(before if i == 0 else width * factor, width, factor, s) for i, s in enumerate(strides)]
            setattr(self, f"layer{number + 1}", nn.Sequential(*blocks))
            before = width * factor
        self.fc = nn.Linear(before, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(module, Block):
                nn.init.zeros_(module.last_norm().weight)

    def layers(self) -> list[nn.Sequential]:
        """Return the four stages."""
        return [layer for layer in self.children() if isinstance(layer, nn.Sequential)]

    def forward(self, images_BCHW: torch.Tensor) -> torch.Tensor:
        """Return the classes' scores, (B, K)."""
        hidden_BCHW = functional.relu(self.bn1(self.conv1(images_BCHW)))
        hidden_BCHW = functional.max_pool2d(hidden_BCHW, 3, stride=2, padding=1)
        for layer in self.layers():
            hidden_BCHW = layer(hidden_BCHW)
        scores_BK: torch.Tensor = self.fc(hidden_BCHW.mean((2, 3)))
        return scores_BK


class Block(nn.Module):
    """Three convolutions (50 layers, the last one four times as wide) or two (18 layers), and a shortcut."""

    downsample: nn.Sequential | None

    def __init__(self, before: int, width: int, factor: int, stride: int) -> None:
        super().__init__()
        after = width * factor
        # Kernel, channels and stride of each convolution.
        plan = (
            [(1, width, 1), (3, width, stride), (1, after, 1)] if factor == 4 else [(3, width, stride), (3, width, 1)]
        )
        self._count = len(plan)
        channels = before
        for number, (kernel, out, step) in enumerate(plan, 1):
            convolution = nn.Conv2d(channels, out, kernel, stride=step, padding=kernel // 2, bias=False)
            setattr(self, f"conv{number}", convolution)
            setattr(self, f"bn{number}", nn.BatchNorm2d(out))
            channels = out
        self.downsample = None
        if stride != 1 or before != after:
            shortcut = nn.Conv2d(before, after, 1, stride=stride, bias=False)
            self.downsample = nn.Sequential(shortcut, nn.BatchNorm2d(after))

    def last_norm(self) -> nn.BatchNorm2d:
        """Return the normalisation before the sum; zero there makes a block start as its shortcut (Goyal et al.)."""
        norm = self.get_submodule(f"bn{self._count}")
        assert isinstance(norm, nn.BatchNorm2d)
        return norm

    def forward(self, x_BCHW: torch.Tensor) -> torch.Tensor:
        """Return the sum of the convolutions and the shortcut."""
        hidden_BCHW = x_BCHW
        for number in range(1, self._count + 1):
            if number > 1:
                hidden_BCHW = functional.relu(hidden_BCHW)
            convolution, norm = self.get_submodule(f"conv{number}"), self.get_submodule(f"bn{number}")
            hidden_BCHW = norm(convolution(hidden_BCHW))
        shortcut_BCHW = x_BCHW if self.downsample is None else self.downsample(x_BCHW)
        return functional.relu(hidden_BCHW + shortcut_BCHW)
