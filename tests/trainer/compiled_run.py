"""Trains a tiny network, compiled if the settings say so; started from a test.

python -m tests.trainer.compiled_run FOLDER KILL_AT [SETTING ...]

It ends itself with SIGKILL in its training pass KILL_AT; 0: never.
"""

import itertools
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from tests.trainer.harness import train_here
from trainer.base.data import Batch
from trainer.base.hard_exit import hard_exit
from trainer.base.overrides import apply_overrides
from trainer.base.recipe import Workload
from trainer.recipes import digits

# Shape legend: B batch, C channels, H height, W width, K classes.


class TinyNet(nn.Module):
    """All kinds of state that a step has, in as few kernels as possible: each takes the compiler two seconds.

    A class of its own: of those that torch has, the compiler leaves the code alone below a DDP wrapper.
    """

    def __init__(self, *, dropout: float) -> None:
        super().__init__()
        self.block = nn.Sequential(nn.Linear(64, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(dropout))
        self.head = nn.Linear(8, digits.CLASSES)

    def forward(self, images_BCHW: torch.Tensor) -> torch.Tensor:
        logits_BK: torch.Tensor = self.head(self.block(images_BCHW.flatten(1)))
        return logits_BK


def main(folder: str, kill_at: str, *settings: str) -> int:
    passes = itertools.count(1)

    def loss(model: nn.Module, batch: Batch) -> torch.Tensor:
        if next(passes) == int(kill_at):
            os.kill(os.getpid(), signal.SIGKILL)
        return digits.mean_cross_entropy(model, batch)

    def build(chosen: digits.DigitsSettings) -> Workload:
        return replace(digits.build_workload(chosen), model=TinyNet(dropout=chosen.model.dropout), loss=loss, blocks=())

    recipe = replace(digits.recipe(), settings=apply_overrides(digits.recipe().settings, settings), build=build)
    return train_here(recipe, Path(folder))


if __name__ == "__main__":
    hard_exit(main(*sys.argv[1:]))
