"""The picture of a run's metrics."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from trainer.report.curves import draw_curves

BLUE = (0x1F, 0x5F, 0xA8)
TRAINING = {"step": 10, "epoch": 1, "loss": 1.0, "lr": 1e-3, "samples_per_second": 5.0, "memory_gib": 0.5}


def test_a_run_with_one_row_of_training_shows_it(tmp_path: Path) -> None:
    """A short run has one, through which no line goes."""
    validation = [{"step": step, "epoch": step // 5, "val_loss": 1 / step} for step in (5, 10, 15)]
    assert count_pixels(tmp_path, [*validation, TRAINING])[BLUE] > count_pixels(tmp_path, validation)[BLUE] + 20


def test_each_metric_has_a_colour_of_its_own(tmp_path: Path) -> None:
    """The surface recipe measures five."""
    names = ("val_dice", "val_score", "val_topology", "val_surface_dice", "val_voi")
    rows: list[dict[str, Any]] = [{"step": step, "epoch": step} for step in (1, 2, 3)]
    colours = []
    for count in (4, 5):
        some = [row | {name: row["step"] + 0.1 * place for place, name in enumerate(names[:count])} for row in rows]
        colours.append({colour for colour, pixels in count_pixels(tmp_path, some).items() if pixels > 300})
    assert len(colours[1] - colours[0]) == 1


def count_pixels(folder: Path, rows: list[dict[str, Any]]) -> Counter[tuple[int, ...]]:
    path = folder / "curves.png"
    draw_curves(rows, path, title="a run", best_epoch=0)
    with Image.open(path) as picture:
        pixels = np.asarray(picture.convert("RGB")).reshape(-1, 3)
    return Counter(map(tuple, pixels.tolist()))
