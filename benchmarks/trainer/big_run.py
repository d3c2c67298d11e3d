"""A run whose checkpoints take 500 MB, for torchrun: python -m benchmarks.trainer.big_run OUTPUT_FOLDER."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from trainer.base.config import CheckpointSettings, Settings
from trainer.base.contract import read_contract
from trainer.base.hard_exit import hard_exit
from trainer.base.recipe import Recipe, Workload
from trainer.base.signals import StopFlag
from trainer.base.sources import Batch
from trainer.run.engine import run_recipe

# Shape legend: B batch, C features.
WIDTH, LAYERS = 3228, 4
"""41.7 million parameters; with both of AdamW's moments 500 MB."""


class Noise:
    """Random samples: only their size matters."""

    def __len__(self) -> int:
        return 64_000

    def sample(self, index: int, rng: np.random.Generator) -> Batch:  # noqa: ARG002
        return (torch.from_numpy(rng.standard_normal(WIDTH, dtype=np.float32)),)


def loss(model: nn.Module, batch: Batch) -> torch.Tensor:
    (inputs_BC,) = batch
    return functional.mse_loss(model(inputs_BC), inputs_BC)


def metrics(model: nn.Module, batch: Batch) -> Mapping[str, torch.Tensor]:
    (inputs_BC,) = batch
    return {"loss": (model(inputs_BC) - inputs_BC).square().mean(dim=1)}


def build(_settings: Settings) -> Workload:
    layers = [layer for _ in range(LAYERS) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    return Workload(
        model=nn.Sequential(*layers), train_data=Noise(), validation_data=Noise(), loss=loss, metrics=metrics
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    flag = StopFlag()
    flag.install()
    settings = Settings(
        batch_size=8, log_every_steps=1, curves=False, onnx=False, checkpoint=CheckpointSettings(every_seconds=0)
    )
    contract = read_contract(os.environ, output_dir=Path(sys.argv[1]))
    run_recipe("big", Recipe(settings=settings, build=build), contract, flag)
    hard_exit(0)
    flag.ignore_further()
