"""Short runs of the recipe on generated pictures."""

from collections.abc import Sequence
from pathlib import Path

from tests.trainer import harness
from trainer.base.signals import StopFlag
from trainer.cli import main

SMALL = (
    "model.depth=18",
    "data.pixels=32",
    "batch_size=12",
    "workers=0",
    "epochs=1",
    "schedule.warmup_epochs=0",
    "onnx=false",
    "curves=false",
)


def train(
    output: Path, data: Path, *settings: str, flags: Sequence[str | Path] = (), stop: StopFlag | None = None
) -> int:
    """Train in this process, and return the exit code."""
    argv = ["imagenet", *harness.settings_args([*SMALL, f"data.folder={data}", *settings]), *map(str, flags)]
    return main([*argv, "--output-dir", str(output)], environ={}, stop=stop or StopFlag())
