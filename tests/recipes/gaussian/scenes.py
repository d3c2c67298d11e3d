"""Small data in the format of fresnel, with features that tell each patch's colour and depth."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from tests.trainer import harness
from trainer.base.signals import StopFlag
from trainer.cli import main

WIDTH = 8
SMALL = ("data.pixels=16", "model.gaussians_per_patch=1", "curves=false", "onnx=false", "samples.every_epochs=0")


def write_scenes(folder: Path, count: int, *, width: int = WIDTH, suffix: str = "_dinov2.bin") -> Path:
    """Write pictures of two coloured halves; what is on the left is nearer."""
    (folder / "features").mkdir(parents=True, exist_ok=True)
    for number in range(count):
        colours = np.random.default_rng(number).uniform(size=(2, 3))
        halves_GG3 = np.repeat(colours[None], 37, 0)[:, (np.arange(37) > 18).astype(int)]
        pixels = np.repeat(np.repeat(colours[None], 64, 0), 32, 1)
        Image.fromarray((pixels * 255).astype(np.uint8)).save(folder / f"{number:03d}.jpg", quality=95)
        features_GGD = np.zeros((37, 37, width))
        features_GGD[..., :3], features_GGD[..., 3] = halves_GG3, np.linspace(1, 0, 37)
        features_GGD.astype("<f4").tofile(folder / "features" / f"{number:03d}{suffix}")
        np.repeat(np.linspace(1, 0, 256)[None], 256, 0).astype("<f4").tofile(
            folder / "features" / f"{number:03d}_depth.bin"
        )
    return folder


def train(
    output: Path, data: Path, *settings: str, flags: Sequence[str | Path] = (), stop: StopFlag | None = None
) -> int:
    """Run the recipe in this process."""
    torch.set_num_threads(1)
    argv = ["gaussian", *harness.settings_args([*SMALL, f"data.folder={data}", *settings])]
    return main([*argv, *map(str, flags), "--output-dir", str(output)], environ={}, stop=stop or StopFlag())
