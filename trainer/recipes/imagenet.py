"""ImageNet classification from folders of pictures: a ResNet-50 with torchvision's weight names, 90 epochs of SGD.

The network is He et al. 2016 (arXiv:1512.03385) with the stride in the 3x3 convolution, the recipe Goyal et al. 2017
(arXiv:1706.02677), with label smoothing from Szegedy et al. 2016 (arXiv:1512.00567).
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from PIL import Image
from torch import nn

from trainer.api import ArraySource, Batch, OptimizerSettings, Recipe, ScheduleSettings, Settings, Workload, setting

# Shape legend: B batch, C channels, H height, W width, K classes.
MEAN_C, DEVIATION_C = np.array([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]], dtype=np.float32)
# Goyal et al. 2017: 0.1 for 256 pictures a step, after a warm-up of 5 epochs.
SGD = OptimizerSettings(name="sgd", learning_rate=0.1, scaling="linear", base_batch=256, weight_decay=1e-4, clip_norm=0)
COSINE = ScheduleSettings(name="cosine", warmup_epochs=5, final=0)


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
    """Return the default configuration."""
    settings = ImageNetSettings(epochs=90, batch_size=256, workers=8, optimizer=SGD, schedule=COSINE)
    return Recipe(settings=settings, build=build_workload)


def build_workload(settings: ImageNetSettings) -> Workload:
    """Make the data, and the ResNet for the classes that train/ has."""
    folder, pixels = Path(settings.data.folder), settings.data.pixels
    classes = sorted(path.name for path in (folder / "train").glob("*") if path.is_dir())
    train_data = pictures(folder / "train", classes, lambda image, rng: random_square(image, pixels, rng))
    model = resnet(settings.model.depth, len(classes))
    return Workload(
        model=model,
        train_data=train_data,
        validation_data=pictures(folder / "val", classes, lambda image, _rng: middle_square(image, pixels)),
        loss=lambda model, batch: nn.functional.cross_entropy(model(batch[0]), batch[1], label_smoothing=0.1),
        metrics=measure,
        best="top1",
        best_is="max",
        blocks=[block for block in model.modules() if isinstance(block, Block)],
        export_inputs=(torch.zeros(2, 3, pixels, pixels),),
        data=f"{len(classes)} classes in ImageNet's layout of folders",
    )


def measure(model: nn.Module, batch: Batch) -> Mapping[str, torch.Tensor]:
    """Compute every picture's cross-entropy (without smoothing), and whether it is in the top 1 and 5, each (B,)."""
    scores_BK, labels_B = model(batch[0]), batch[1]
    hits_B5 = (scores_BK.topk(min(5, scores_BK.shape[1])).indices == labels_B[:, None]).float()
    loss_B = nn.functional.cross_entropy(scores_BK, labels_B, reduction="none")
    return {"loss": loss_B, "top1": hits_B5[:, 0], "top5": hits_B5.sum(1)}


def pictures(folder: Path, classes: list[str], crop: Callable[..., Image.Image]) -> ArraySource:
    """List the pictures in one folder per class; a sample is one, normalised, (3, H, W), and its class."""
    files = [(str(p), label) for label, name in enumerate(classes) for p in sorted((folder / name).glob("*"))]
    files = [(path, label) for path, label in files if path.lower().endswith((".jpeg", ".jpg", ".png"))]
    if not files:
        raise ValueError(f"no pictures {folder}/CLASS/*.jpeg, .jpg or .png: set data.folder")

    def read(sample: Batch, rng: np.random.Generator) -> Batch:
        with Image.open(files[int(sample[0])][0]) as file:
            square = crop(file.convert("RGB"), rng)
        pixels_HWC = (np.asarray(square, dtype=np.float32) / 255 - MEAN_C) / DEVIATION_C
        return torch.from_numpy(pixels_HWC).permute(2, 0, 1).contiguous(), sample[1]

    return ArraySource(torch.arange(len(files)), torch.tensor([label for _, label in files]), transform=read)


def random_square(picture: Image.Image, pixels: int, rng: np.random.Generator) -> Image.Image:
    """Cut out a rectangle (Szegedy et al. 2015, arXiv:1409.4842), resize it, and mirror it with probability 1/2."""
    square = picture.resize((pixels, pixels), Image.Resampling.BILINEAR, random_box(*picture.size, rng))
    return square.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if rng.random() < 0.5 else square


def random_box(width: int, height: int, rng: np.random.Generator) -> tuple[float, float, float, float]:
    """Draw left, top, right, bottom: 8% to 100% of the area, with a ratio of 3/4 to 4/3.

    If ten draws don't fit, it is the largest box in the middle with an admissible ratio, as in torchvision.
    """
    for _ in range(10):
        area, ratio = width * height * rng.uniform(0.08, 1), np.exp(rng.uniform(np.log(3 / 4), np.log(4 / 3)))
        w, h = float(np.sqrt(area * ratio)), float(np.sqrt(area / ratio))
        if w <= width and h <= height:
            left, top = rng.uniform(0, width - w), rng.uniform(0, height - h)
            return left, top, left + w, top + h
    w, h = min(width, height * 4 / 3), min(height, width * 4 / 3)
    return (width - w) / 2, (height - h) / 2, (width + w) / 2, (height + h) / 2


def middle_square(picture: Image.Image, pixels: int) -> Image.Image:
    """Resize the shorter side to 256/224 of the square's and cut out the middle, both in one step."""
    width, height, side = picture.width, picture.height, min(picture.size) * pixels / round(pixels * 256 / 224)
    box = ((width - side) / 2, (height - side) / 2, (width + side) / 2, (height + side) / 2)
    return picture.resize((pixels, pixels), Image.Resampling.BILINEAR, box)


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
