"""Draws docs/workflows/imagenet.png: generated pictures as the network gets them, and the curves of a short run.

python -m docs.workflows.draw_imagenet; it trains for a minute or two.
"""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image

from trainer.recipes.imagenet.pictures import augment

ROOT = Path(__file__).resolve().parents[2]
PICTURES = 6
SETTINGS = (
    *("model.depth=18", "data.pixels=32", "data.augmentation=plain", "workers=0", "batch_size=16", "epochs=6"),
    *("loss.mixup=0", "schedule.name=one_cycle", "schedule.warmup_epochs=0", "optimizer.learning_rate=0.8"),
    *("onnx=false", "curves=false"),
)


def draw(folder: Path) -> Figure:
    """Draw one column for each class, and below them what a run on them has reached."""
    figure = Figure(figsize=(10, 6.4), layout="constrained")
    grid = figure.add_gridspec(4, PICTURES, height_ratios=(1, 1, 1, 1.8))
    rng = np.random.default_rng(1)
    for column, name in enumerate(sorted(path.name for path in (folder / "data/train").iterdir())):
        with Image.open(min((folder / "data/train" / name).iterdir())) as file:
            picture = file.convert("RGB")
        versions = [picture, *(augment(picture, 64, rng) for _ in range(2))]
        for row, version in enumerate(versions):
            axes = figure.add_subplot(grid[row, column])
            axes.imshow(np.asarray(version))
            axes.set_axis_off()
            if row == 0:
                axes.set_title(name, fontsize=9)
    rows = [json.loads(line) for line in (folder / "run/metrics.jsonl").read_text().splitlines()]
    for part, key, label in ((grid[3, :3], "loss", "training loss"), (grid[3, 3:], "val_top1", "top-1 on val/")):
        axes = figure.add_subplot(part)
        points: NDArray[np.float64] = np.array([(row["step"], row[key]) for row in rows if key in row])
        axes.plot(points[:, 0], points[:, 1], color="#1f5fa8")
        axes.set(xlabel="step", title=label)
        if key == "val_top1":
            axes.axhline(1 / PICTURES, color="#d9731a", linestyle="--", label="a constant")
            axes.set_ylim(0, 1)
            axes.legend()
    return figure


def main() -> None:
    """Generate pictures, train on them, and draw both."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        trainer = [sys.executable, "-m", "trainer"]
        data = folder / "data"
        subprocess.run([*trainer, "generate", "imagenet", str(data), "--count", "600"], cwd=ROOT, check=True)
        settings = [part for each in (*SETTINGS, f"data.folder={data}") for part in ("--set", each)]
        subprocess.run([*trainer, "imagenet", *settings, "--output-dir", str(folder / "run")], cwd=ROOT, check=True)
        save(draw(folder), Path(__file__).with_name("imagenet.png"))


def save(figure: Figure, path: Path) -> None:
    """Write the figure with few colours, so that the file is small."""
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=80)
    with Image.open(buffer) as picture:
        picture.convert("P", palette=Image.Palette.ADAPTIVE, colors=128).save(path, optimize=True)


if __name__ == "__main__":
    main()
