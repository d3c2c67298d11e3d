"""Trains a small sharded network; a test starts it with torchrun.

python divided_run.py FOLDER BLOCKS SETTING ...
"""

import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from tests.trainer.harness import train_here
from trainer.base.config import Settings
from trainer.base.hard_exit import hard_exit
from trainer.base.overrides import apply_overrides
from trainer.base.recipe import BuiltWorkload, Recipe
from trainer.base.sources import Batch

# Shape legend: B batch.
WIDTH = 256


class Line:
    """Points on a line with a slope of 2."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def sample(self, index: int, rng: np.random.Generator) -> Batch:
        x_1 = torch.tensor([index / 50 + float(rng.normal()) / 100])
        return x_1, 2 * x_1


def measure(model: nn.Module, batch: Batch) -> Mapping[str, torch.Tensor]:
    return {"loss": (model(batch[0]) - batch[1]).square().squeeze(1)}


def build(blocks: int) -> BuiltWorkload:
    middle = [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(3)]
    return BuiltWorkload(
        model=nn.Sequential(nn.Linear(1, WIDTH), *middle, nn.Linear(WIDTH, 1)),
        train_data=Line(16),
        validation_data=Line(3),  # one process of two has no sample in the second batch of one each
        loss=lambda model, batch: functional.mse_loss(model(batch[0]), batch[1]),
        metrics=measure,
        export_inputs=(torch.zeros(2, 1),),
        best_is="max",  # so that no later epoch is the best and gets saved
        blocks=middle[:blocks],
    )


def main(folder: str, blocks: str, *settings: str) -> int:
    base = Settings(epochs=2, batch_size=16, micro_batch=1, curves=False, onnx=False, log_every_steps=1)
    recipe = Recipe(settings=apply_overrides(base, settings), build=lambda _: build(int(blocks)))
    return train_here(recipe, Path(folder))


if __name__ == "__main__":
    hard_exit(main(*sys.argv[1:]))
