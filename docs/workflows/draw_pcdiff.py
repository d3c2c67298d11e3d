"""Draws docs/workflows/pcdiff.png: trains on generated skulls, and makes implants for held-out ones.

python -m docs.workflows.draw_pcdiff [STEPS]; 1,400 steps take about ten minutes on a core. With more of them, the
holes are filled better.
"""

from __future__ import annotations

import io
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image

from benchmarks.learning.bar import learn
from benchmarks.learning.pcdiff import BAR

# Shape legend: N points of a cloud.
PICTURE = Path(__file__).with_name("pcdiff.png")
STEPS = 1_400
SKULLS = 60
CASES = 4
# The noise grows in fewer steps than for real skulls, and less of the implant is left out of reach at the last one.
NOISE = ("diffusion.steps=100", "diffusion.first_beta=0.001", "diffusion.last_beta=0.1")
SAMPLES = (f"sampling.count={CASES}", "sampling.method=ddpm", "sampling.limit=3.5", "ema_decay=0.98")
_HEADER_END = b"end_header\n"
Points = NDArray[np.float64]


def main() -> None:
    """Train for so many steps, and draw the newest samples."""
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else STEPS
    settings = (*BAR.settings, *NOISE, *SAMPLES, f"max_steps={steps}", f"samples.every_steps={steps}")
    with tempfile.TemporaryDirectory() as folder:
        learnt = learn(replace(BAR, settings=settings, count=SKULLS), Path(folder), seed=0)
        sys.stdout.write(f"{learnt}\n")
        (samples,) = Path(folder).glob("run/samples/*")
        draw(Path(folder) / "data", samples)


def draw(data: Path, samples: Path) -> None:
    """Draw each case: the skull with its true implant, and below with the one that was made."""
    files = sorted(samples.glob("*-samples.ply"))
    figure = Figure(figsize=(2.4 * len(files), 5), layout="constrained")
    for column, file in enumerate(files):
        skull, defect = file.stem.removesuffix("-samples").split("-")
        known_N3, true_N3 = (
            np.load(data / kind / defect / f"{skull}_surf.npy") for kind in ("defective_skull", "implant")
        )
        view = _look_at(true_N3.mean(0) - known_N3.mean(0))
        for row, (points_N3, colour, size) in enumerate(((true_N3, "#1a8c3a", 1.5), (_read_ply(file), "#d02020", 14))):
            axes = figure.add_subplot(2, len(files), 1 + column + row * len(files))
            _scatter(axes, known_N3 - known_N3.mean(0), view, "#8a8a8a", 1)
            _scatter(axes, points_N3 - known_N3.mean(0), view, colour, size)
            axes.set(xlim=(-230, 230), ylim=(-230, 230), aspect="equal")
            axes.set_axis_off()
            axes.set_title(f"{defect}: {'the truth' if row == 0 else 'made'}", fontsize=9)
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=90)
    with Image.open(buffer) as picture:
        picture.convert("P", palette=Image.Palette.ADAPTIVE, colors=64).save(PICTURE, optimize=True)


def _scatter(axes: Axes, points_N3: Points, view: Points, colour: str, size: float) -> None:
    """Draw the points of the half that faces the viewer, the nearest last."""
    seen_N3 = points_N3 @ view.T
    seen_N3 = seen_N3[seen_N3[:, 2] > 0]
    seen_N3 = seen_N3[np.argsort(seen_N3[:, 2])]
    axes.scatter(seen_N3[:, 0], seen_N3[:, 1], s=size, c=colour, linewidths=0)


def _look_at(towards_3: Points) -> Points:
    """Return the axes of a view: right, up, and to the viewer, who stands a little beside the defect."""
    front_3 = towards_3 / np.linalg.norm(towards_3) + (0.35, 0.35, -0.1)
    front_3 /= np.linalg.norm(front_3)
    up_3 = np.array([0.0, 0.0, 1.0] if abs(front_3[2]) < 0.9 else [0.0, 1.0, 0.0])
    right_3 = np.cross(up_3, front_3)
    right_3 /= np.linalg.norm(right_3)
    return np.stack([right_3, np.cross(front_3, right_3), front_3])


def _read_ply(file: Path) -> Points:
    """Read the points of one of the trainer's samples."""
    return np.frombuffer(file.read_bytes().partition(_HEADER_END)[2], "<f4").reshape(-1, 3).astype(np.float64)


if __name__ == "__main__":
    main()
