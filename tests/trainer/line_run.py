"""Fits a line on each of torchrun's ranks: python line_run.py FOLDER [one-sample] SETTING ...

Its validation is independent of the model's weights, so that one process and several have to agree on each result.
"""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tests.trainer import harness, line
from trainer.base.hard_exit import hard_exit
from trainer.base.recipe import Moment, Recipe
from trainer.base.sources import Batch

# Shape legend: B batch.
SAMPLES = 5
"""Of validation: with micro-batches of one, the second of two ranks has nothing but padding in the last batch."""

ONE_SAMPLE = "one-sample"
"""Validates with fewer samples than ranks."""


class Median:
    """A metric that no mean over batches or ranks gives."""

    def __init__(self) -> None:
        self.seen: list[float] = []

    def update(self, model: nn.Module, batch: Batch) -> None:
        model(batch[0])
        self.seen += (batch[0] ** 2 + batch[0]).flatten().tolist()

    def state(self) -> Any:
        return self.seen

    def merge(self, states: Sequence[Any]) -> Mapping[str, float]:
        seen = torch.tensor([value for state in states for value in state])
        return {"median": float(seen.median()), "count": len(seen)}


def weight(batch: Batch) -> torch.Tensor:
    total: torch.Tensor = (batch[0] + 2).sum()
    return total


def loss(model: nn.Module, batch: Batch) -> torch.Tensor:
    """The mean of x by weight; the model takes part, but doesn't matter."""
    mean: torch.Tensor = (batch[0] * (batch[0] + 2)).sum() / weight(batch) + 0 * model(batch[0]).sum()
    return mean


def mean_of_x(model: nn.Module, batches: Iterator[Batch]) -> Mapping[str, float]:
    seen = [batch[0] + 0 * model(batch[0]) for batch in batches]
    return {"mean_x": float(torch.cat(seen).mean())}


def make_samples(model: nn.Module, moment: Moment) -> Mapping[str, Any]:
    model(torch.zeros(2, 1))
    return {"step.txt": str(moment.step)}


def recipe(*settings: str, samples: int = SAMPLES) -> Recipe[Any]:
    return line.recipe(
        "epochs=2",
        "micro_batch=1",
        "samples.every_epochs=1",
        *settings,
        metrics=None,
        loss=loss,
        weight=weight,
        validation_data=line.Line(samples),
        set_metrics={"median": Median},
        evaluate=mean_of_x,
        samples=make_samples,
        # Batch norm on one sample has nothing to average over.
        model=nn.Sequential(nn.Linear(1, 4), nn.Tanh(), nn.Linear(4, 1)),
    )


def main(folder: str, *settings: str) -> int:
    samples = 1 if ONE_SAMPLE in settings else SAMPLES
    made = recipe(*(setting for setting in settings if setting != ONE_SAMPLE), samples=samples)
    code = harness.train_here(made, Path(folder))
    if os.environ["RANK"] != "0" and not (Path(folder) / "README.md").exists():
        sys.stderr.write("this rank has not waited for the outputs\n")
        return 1
    return code


if __name__ == "__main__":
    hard_exit(main(*sys.argv[1:]))
