"""`pcdiff` on generated skulls: how well it predicts the noise in implants for skulls that it wasn't trained on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from benchmarks.learning.bar import LearningBar
from trainer.api import Sample
from trainer.recipes.pcdiff.clouds import SkullClouds, read_cases
from trainer.recipes.pcdiff.diffusion import Diffusion
from trainer.recipes.pcdiff.settings import DataSettings, DiffusionSettings

# Shape legend: I points of an implant, P points of all implants for training.
POINTS, IMPLANT_POINTS = 256, 64
_SIZES = (0.1, 0.2, 0.4, 0.7, 1.0, 1.5)
_SMALL = (
    *(f"data.points={POINTS}", f"data.implant_points={IMPLANT_POINTS}", "workers=0"),
    *("model.width=0.25", "model.voxels=0.25", "model.neighbours=8", "model.radius=0.6", "model.dropout=0"),
    *("optimizer.learning_rate=0.004", "optimizer.clip_norm=1", "ema_decay=0.95"),
    *("sampling.validation_count=0", "validate.every_epochs=0", "epochs=10000"),
)


def error_of_the_best_blob(folder: Path) -> float:
    """Compute the smallest mean squared error of the noise that is reached without looking at the skull.

    The implants are taken for a Gaussian around the mean of those for training, whose covariance is theirs, narrowed or
    widened as is best for all cases. That is far better than a constant or an untrained network, whose error is 1.
    """
    settings = DataSettings(folder=str(folder), points=POINTS, implant_points=IMPLANT_POINTS)
    process = Diffusion(DiffusionSettings())
    train, held_out = (SkullClouds(folder, cases, settings, process, is_training=False) for cases in read_cases(folder))
    known_P3 = torch.cat([train.sample(index, np.random.default_rng(index))["implant"] for index in range(len(train))])
    mean_3, covariance_33 = known_P3.mean(0), torch.cov(known_P3.T)
    samples = [held_out.sample(index, np.random.default_rng(index)) for index in range(len(held_out))]
    errors = [
        [
            _measure_error(sample, float(process.kept_T[sample["step"]]), mean_3, size * covariance_33)
            for sample in samples
        ]
        for size in _SIZES
    ]
    return float(np.mean(errors, 1).min())


def _measure_error(sample: Sample, kept: float, mean_3: torch.Tensor, covariance_33: torch.Tensor) -> float:
    """Measure the best guess of the noise, which is linear in the noisy points."""
    noisy_33 = kept * covariance_33 + (1 - kept) * torch.eye(3)
    away_I3 = sample["noisy"] - kept**0.5 * mean_3
    guess_I3 = (1 - kept) ** 0.5 * torch.linalg.solve(noisy_33, away_I3.T).T
    return float((guess_I3 - sample["noise"]).square().mean())


SHORT = LearningBar(
    recipe="pcdiff",
    count=20,
    settings=(*_SMALL, "batch_size=8", "schedule.name=constant", "max_steps=120"),
    metric="val_loss",
    better="min",
    reach=0.3,
    untrained=error_of_the_best_blob,
)
BAR = LearningBar(
    recipe="pcdiff",
    count=40,
    settings=(*_SMALL, "batch_size=16", "schedule.name=cosine", "max_steps=600"),
    metric="val_loss",
    better="min",
    reach=0.235,
    untrained=error_of_the_best_blob,
)
