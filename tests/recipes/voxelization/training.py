"""Trains a network that is as small as it gets, in this process."""

from __future__ import annotations

from pathlib import Path

from tests.trainer import harness
from trainer.base.signals import StopFlag
from trainer.cli import main
from trainer.recipes.voxelization.settings import ModelSettings

SMALL_MODEL = ModelSettings(width=8, blocks=2, cells=4, levels=2, offsets=2)
SMALL = (
    *("model.width=8", "model.blocks=2", "model.cells=4", "model.levels=2", "model.offsets=2"),
    *("poisson.grid=16", "data.points=64", "epochs=2", "batch_size=2", "workers=0", "curves=false", "onnx=false"),
    *("log_every_steps=1", "checkpoint.every_epochs=1", "validate.every_epochs=1"),
)


def train(data: Path, output: Path, *settings: str, flags: tuple[str, ...] = (), stop: StopFlag | None = None) -> int:
    """Run `python -m trainer voxelization`, two epochs of two steps, and return its exit code."""
    settings = (*SMALL, f"data.folder={data}", *settings)
    argv = ["voxelization", *harness.settings_args(settings), *flags, "--output-dir", str(output)]
    return main(argv, environ={}, stop=stop or StopFlag())
