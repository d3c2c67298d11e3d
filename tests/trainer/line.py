"""A recipe that fits a line with two weights: a run takes milliseconds, in this process."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from trainer.base.config import Settings
from trainer.base.contract import read_contract
from trainer.base.errors import TrainerError
from trainer.base.overrides import apply_overrides
from trainer.base.recipe import Recipe, Workload
from trainer.base.signals import StopFlag
from trainer.base.sources import Batch
from trainer.run.engine import run_recipe

# Shape legend: B batch.
STEPS_PER_EPOCH = 4
BATCH, VALIDATION_SAMPLES = 8, 10


class Line:
    """Points on y = 2 x + 1, with noise in training."""

    def __init__(self, count: int, *, noise: float = 0.0) -> None:
        self.x_B = torch.linspace(-1, 1, count)
        self._noise = noise

    def __len__(self) -> int:
        return len(self.x_B)

    def sample(self, index: int, rng: np.random.Generator) -> Batch:
        x_1 = self.x_B[index : index + 1]
        return x_1, 2 * x_1 + 1 + self._noise * float(rng.normal())


def measure(model: nn.Module, batch: Batch) -> Mapping[str, torch.Tensor]:
    difference_B = (model(batch[0]) - batch[1]).squeeze(1)
    return {"loss": difference_B.square(), "error": difference_B.abs()}


def build(_settings: Settings, **changes: Any) -> Workload:
    # Batch norm and dropout: all kinds of state that validation must leave as it is.
    model = nn.Sequential(nn.Linear(1, 4), nn.BatchNorm1d(4), nn.Dropout(0.1), nn.Linear(4, 1))
    workload = Workload(
        model=model,
        train_data=Line(STEPS_PER_EPOCH * BATCH, noise=0.1),
        validation_data=Line(VALIDATION_SAMPLES),
        loss=lambda model, batch: functional.mse_loss(model(batch[0]), batch[1]),
        metrics=measure,
    )
    return replace(workload, **changes)


def recipe(*assignments: str, **changes: Any) -> Recipe[Settings]:
    """Make the recipe with other settings, and with other parts of its workload."""
    base = Settings(epochs=3, batch_size=BATCH, log_every_steps=1, curves=False, onnx=False)
    return Recipe(settings=apply_overrides(base, assignments), build=lambda settings: build(settings, **changes))


def train(recipe: Recipe[Any], folder: Path, stop: StopFlag | None = None) -> int:
    """Train here, as a single process; return the exit code."""
    try:
        run_recipe("digits", recipe, read_contract({}, output_dir=folder), stop or StopFlag())
    except TrainerError as err:
        sys.stderr.write(f"error: {err}\n")
        return err.exit_code
    return 0


def train_in_pieces(make: Callable[[], Recipe[Any]], folder: Path, stop_at: Callable[[int], StopFlag]) -> int:
    """Train with stops after two to six polls, until the run is complete; return how many starts that took."""
    starts = 0
    while '"succeeded"' not in _status(folder):
        # A validation has three polls: some starts end within it, others get past it.
        assert train(make(), folder, stop_at(2 + starts % 5)) == 0
        starts += 1
    return starts


def _status(folder: Path) -> str:
    path = folder / "status.json"
    return path.read_text() if path.exists() else ""
