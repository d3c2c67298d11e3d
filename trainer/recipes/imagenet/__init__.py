"""ImageNet classification: a ResNet-50 with torchvision's weight names, 90 epochs of SGD with mixup.

The network is He et al. 2016 (arXiv:1512.03385) with the stride in the 3x3 convolution, the recipe Goyal et al. 2017
(arXiv:1706.02677), with label smoothing from Szegedy et al. 2016 (arXiv:1512.00567) and mixup from Zhang et al. 2018
(arXiv:1710.09412). Modules: `layouts` finds the pictures, `pictures` and `augmentation` prepare them, `mixing` has the
loss and the metrics, `network` the ResNet.
"""

from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal

import torch

from trainer.api import OptimizerSettings, Recipe, ScheduleSettings, Settings, Workload, setting
from trainer.recipes.imagenet.layouts import Reading, open_pictures
from trainer.recipes.imagenet.mixing import measure, mix_samples, smoothed_cross_entropy
from trainer.recipes.imagenet.network import Block, resnet
from trainer.recipes.imagenet.pictures import Prepare, augment, middle_square, random_square

# Goyal et al. 2017: 0.1 for 256 pictures a step, after a warm-up of 5 epochs.
SGD = OptimizerSettings(name="sgd", learning_rate=0.1, scaling="linear", base_batch=256, weight_decay=1e-4, clip_norm=0)
COSINE = ScheduleSettings(name="cosine", warmup_epochs=5, final=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSettings:
    """The pictures."""

    folder: str = setting("", "has train/CLASS/*.jpeg and val/CLASS/*.jpeg, tar shards, or parquet files")
    layout: Literal["auto", "folders", "shards", "parquet"] = setting("auto", "how they lie there; auto: as it looks")
    classes: int = setting(0, "how many classes there are; 0: as many as the data name", minimum=0)
    pixels: int = setting(224, "side of the square that the network sees", minimum=32)
    augmentation: Literal["strong", "plain"] = setting(
        "strong", "plain: a random crop, mirrored; strong: also colours, angle and sharpness", change="announced"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """The network."""

    depth: Literal[50, 18] = setting(50, "layers of the ResNet")


@dataclass(frozen=True, slots=True, kw_only=True)
class LossSettings:
    """What is learnt of a picture."""

    smoothing: float = setting(0.1, "label smoothing", minimum=0, below=1, change="announced")
    mixup: float = setting(0.2, "parameter of mixup's Beta distribution; 0: no mixup", minimum=0, change="announced")


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageNetSettings(Settings):
    """All settings of this recipe."""

    data: DataSettings = field(default_factory=DataSettings)
    model: ModelSettings = field(default_factory=ModelSettings)
    loss: LossSettings = field(default_factory=LossSettings)


def recipe() -> Recipe[ImageNetSettings]:
    """Return the default configuration."""
    settings = ImageNetSettings(epochs=90, batch_size=256, workers=8, optimizer=SGD, schedule=COSINE)
    return Recipe(settings=settings, build=build_workload)


def build_workload(settings: ImageNetSettings) -> Workload:
    """Make the data, and the ResNet for the classes that they have."""
    pixels = settings.data.pixels
    cut = augment if settings.data.augmentation == "strong" else random_square
    reading = Reading(
        folder=Path(settings.data.folder),
        classes=settings.data.classes,
        train=Prepare(crop=lambda picture, rng: cut(picture, pixels, rng), mixup=settings.loss.mixup),
        validation=Prepare(crop=lambda picture, _rng: middle_square(picture, pixels)),
    )
    pictures = open_pictures(reading, settings.data.layout)
    return Workload(
        model=partial(resnet, settings.model.depth, pictures.classes),
        train_data=pictures.train,
        validation_data=pictures.validation,
        collate=mix_samples,
        loss=smoothed_cross_entropy(settings.loss.smoothing),
        metrics=measure,
        best="top1",
        best_is="max",
        blocks=lambda model: [block for block in model.modules() if isinstance(block, Block)],
        export_inputs=(torch.zeros(2, 3, pixels, pixels),),
        data=pictures.about,
    )
