"""Surfaces of papyrus in CT volumes of scrolls: 3-D U-Nets for "Vesuvius Challenge - Surface Detection" (Kaggle 2025).

`networks` has the three variants, `filters` their input channels; `losses` and `distance` the loss; `volumes` and
`patches` the data; `scoring` what is measured. The data are the competition's: train.csv (id, scroll_id),
train_images/ID.tif and train_labels/ID.tif, 8-bit volumes.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import torch

from trainer.api import (
    CheckpointSettings,
    ComputeSettings,
    OptimizerSettings,
    Recipe,
    ScheduleSettings,
    Settings,
    Workload,
    setting,
)
from trainer.recipes.surface.losses import LossSettings, surface_loss
from trainer.recipes.surface.networks import check_patch, list_blocks, make_network
from trainer.recipes.surface.patches import PatchSource, split_by_scroll
from trainer.recipes.surface.scoring import ScoreMetric, draw_slice, measure
from trainer.recipes.surface.volumes import VolumeStore

_WINDOW = 64
"""The largest side of the volume with which the ONNX model is compared: at 128 that takes 10 GB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSettings:
    """The volumes, and how patches are cut out of them."""

    folder: str = setting("", "has train.csv, train_images/ and train_labels/", change="announced")
    cache: str = setting(
        "", "folder for decoded volumes, 64 MB for each of 320^3; empty: decode them each time", change="freely"
    )
    held_out: str = setting("26002", "the scroll for validation")
    patch: int = setting(128, "voxels along each side of a patch", minimum=4)
    patches: int = setting(4, "patches of each volume in an epoch", minimum=1)
    centred: float = setting(0.7, "share of the patches that are centred on a surface", minimum=0)
    validation_patches: int = setting(2, "patches of each held-out volume; 80% are centred on a surface", minimum=1)
    scored_patches: int = setting(
        16, "validation patches whose competition score is measured (seconds each)", minimum=0, change="freely"
    )
    dilation: int = setting(2, "voxels by which the skeleton is dilated", minimum=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """The network."""

    variant: Literal["v1", "v2", "v3"] = setting(
        "v2", "v1: U-Net; v2: with deep supervision; v3: three U-Nets on nested crops"
    )
    base_filters: int = setting(0, "channels of the first stage; 0: 32, for v3 16", minimum=0)
    depth: int = setting(4, "stages without the bottleneck", minimum=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class SurfaceSettings(Settings):
    """All settings of this recipe."""

    data: DataSettings = field(default_factory=DataSettings)
    model: ModelSettings = field(default_factory=ModelSettings)
    loss: LossSettings = field(default_factory=LossSettings)


def recipe() -> Recipe[SurfaceSettings]:
    """Return the default configuration."""
    settings = SurfaceSettings(
        epochs=200,
        batch_size=4,
        workers=4,
        optimizer=OptimizerSettings(learning_rate=1e-3, weight_decay=1e-4, clip_norm=1.0),
        schedule=ScheduleSettings(name="cosine", final=0.01),
        # TF32 is ignored where there is none (T4); the patches' size never changes, so cuDNN's search pays.
        compute=ComputeSettings(tf32=True, benchmark=True),
        checkpoint=CheckpointSettings(keep_every_epochs=25),
    )
    return Recipe(settings=settings, build=build_workload)


def build_workload(settings: SurfaceSettings) -> Workload:
    """Make the network and the patches of the training scrolls and of the held-out one."""
    data, model, loss = settings.data, settings.model, settings.loss
    check_patch(model.variant, patch=data.patch, depth=model.depth)
    training, validation = split_by_scroll(Path(data.folder), data.held_out)
    store = VolumeStore(Path(data.folder), Path(data.cache) if data.cache else None)

    def patches(names: list[str], per_volume: int, centred: float, *, augments: bool, scored: int) -> PatchSource:
        return PatchSource(
            names,
            store,
            side=data.patch,
            per_volume=per_volume,
            centred=centred,
            dilation=data.dilation,
            augments=augments,
            scored=scored,
        )

    held_out = patches(validation, data.validation_patches, 0.8, augments=False, scored=data.scored_patches)
    scores = {"score": lambda: ScoreMetric(loss.ignore_index)} if data.scored_patches else {}
    base_filters = model.base_filters or (16 if model.variant == "v3" else 32)
    return Workload(
        model=make_network(model.variant, base_filters=base_filters, depth=model.depth),
        train_data=patches(training, data.patches, data.centred, augments=True, scored=0),
        validation_data=held_out,
        loss=lambda net, batch: surface_loss(net(batch.raw), batch.labels, batch.skeleton, loss),
        metrics=lambda net, batch: measure(net, batch, loss),
        set_metrics=scores,
        best="dice",
        best_is="max",
        blocks=list_blocks,
        samples=lambda net, _moment: draw_slice(net, held_out),
        export_inputs=(torch.zeros(2, 1, *(min(data.patch, _WINDOW),) * 3),),
        data=f"Vesuvius Challenge: {len(training)} volumes, and {len(validation)} of scroll {data.held_out} held out",
    )
