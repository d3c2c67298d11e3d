"""Does `gaussian` learn to paint scenes from their features? Its PSNR on held-out scenes, against the best constant."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import torch

from benchmarks.learning.bar import LearningBar
from trainer.api import split
from trainer.metrics.images import psnr
from trainer.recipes.gaussian.data import SceneFolder
from trainer.recipes.gaussian.settings import DataSettings
from trainer.recipes.gaussian.workload import SPLIT_SEED

_SHARED = (
    "data.held_out=0.2",
    "model.gaussians_per_patch=1",
    "model.dropout=0",
    "optimizer.learning_rate=0.002",
    "schedule.warmup_steps=5",
    "samples.every_epochs=0",
)


def measure_constant(data: Path, *, pixels: int, held_out: float = 0.2) -> float:
    """Compute the PSNR of the mean of the held-out pictures themselves: a constant that knows more than it could."""
    scenes = SceneFolder(DataSettings(folder=str(data)), pixels=pixels)
    shown = split(scenes, held_out, seed=SPLIT_SEED)[1]
    images_B3HW = torch.stack([shown.sample(i, np.random.default_rng(0)).image for i in range(len(shown))])
    return float(psnr(images_B3HW.mean(0, keepdim=True).expand_as(images_B3HW), images_B3HW).mean())


BAR = LearningBar(
    recipe="gaussian",
    count=40,
    settings=("data.pixels=32", "epochs=20", "batch_size=8", *_SHARED),
    metric="val_psnr",
    better="max",
    reach=19.0,
    untrained=partial(measure_constant, pixels=32),
)

SHORT = LearningBar(
    recipe="gaussian",
    count=40,
    settings=("data.pixels=16", "epochs=5", "batch_size=4", *_SHARED),
    metric="val_psnr",
    better="max",
    reach=17.5,
    untrained=partial(measure_constant, pixels=16),
)
