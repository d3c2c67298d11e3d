"""One loop over a recipe's training data, for bench_recipes.

`python -m benchmarks.trainer.recipe_loops KIND RECIPE ...`: KIND is `bare` or `kedge`; the rest are settings for --set.
Prints the seconds of a step: data, gradient and update.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from trainer.base.config import Settings
from trainer.base.contract import read_contract
from trainer.base.overrides import apply_overrides
from trainer.base.recipe import Moment, Recipe, Workload, bind_loss
from trainer.base.signals import StopFlag
from trainer.data.batch import stack_samples
from trainer.recipes import find_recipe
from trainer.recipes._loading import load_recipe
from trainer.run.engine import run_recipe
from trainer.step.build import build_workload
from trainer.step.optimizers import make_optimizer

CHUNK = 4
"""Steps of a piece; the median piece counts: other work on the computer disturbs some."""
STEPS = 10 * CHUNK
_QUIET = ("curves=false", "onnx=false", "workers=0", "validate.every_epochs=0", "checkpoint.every_epochs=0")
_QUIET_STEPS = ("checkpoint.every_seconds=0", "samples.every_epochs=0", "samples.every_steps=0", f"max_steps={STEPS}")


class Laps:
    """Notes the time at each loss."""

    def __init__(self) -> None:
        self.marks: list[float] = []

    def timed(self, workload: Workload) -> Workload:
        """Return the workload with a loss that notes the time."""
        loss = bind_loss(workload.loss)

        def note(model: nn.Module, batch: Any, moment: Moment) -> torch.Tensor:
            self.marks.append(time.perf_counter())
            return loss(model, batch, moment)

        return replace(workload, loss=note)

    def seconds(self) -> float:
        """Return the seconds of a step; the first piece warms up."""
        return statistics.median(np.diff(self.marks[CHUNK::CHUNK]).tolist()) / CHUNK


class Samples(Dataset[Any]):
    """A recipe's source, as a plain script would read it."""

    def __init__(self, source: Any) -> None:
        self._source = source

    def __len__(self) -> int:
        return len(self._source)

    def __getitem__(self, index: int) -> Any:
        return self._source.sample(index, np.random.default_rng((0, index)))


def bare(recipe: Recipe[Any], laps: Laps) -> None:
    """Train as a plain script does: the recipe's data, loss and optimizer, clipping, and nothing else."""
    settings: Settings = recipe.settings
    workload = build_workload(recipe)
    timed = laps.timed(workload)
    loss: Callable[..., torch.Tensor] = timed.loss
    model, optimizer = workload.model.train(), make_optimizer(settings.optimizer, workload.model, workload)
    loader = DataLoader(
        Samples(workload.train_data),
        batch_size=settings.batch_size,
        shuffle=True,
        drop_last=True,
        collate_fn=workload.collate or stack_samples,
    )
    step = 0
    while step < STEPS:
        for batch in loader:
            optimizer.zero_grad(set_to_none=True)
            loss(model, batch, Moment(step=step)).backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
            if settings.optimizer.clip_norm:
                nn.utils.clip_grad_norm_(model.parameters(), settings.optimizer.clip_norm)
            optimizer.step()
            step += 1
            if step == STEPS:
                break


def kedge(recipe: Recipe[Any], laps: Laps) -> None:
    """Train with the trainer."""
    timed = replace(recipe, build=lambda settings: laps.timed(recipe.build(settings)))
    with tempfile.TemporaryDirectory(prefix="kedge-bench-") as folder:
        run_recipe("bench", timed, read_contract(os.environ, output_dir=Path(folder)), StopFlag())


def main(kind: str, name: str, *settings: str) -> None:
    """Run one loop."""
    torch.set_num_threads(1)
    recipe = load_recipe(find_recipe(name))
    changed = apply_overrides(recipe.settings, ["epochs=1000", *settings, *_QUIET, *_QUIET_STEPS])
    laps = Laps()
    {"bare": bare, "kedge": kedge}[kind](replace(recipe, settings=changed), laps)
    print(f"seconds {laps.seconds()}")


if __name__ == "__main__":
    main(*sys.argv[1:])
