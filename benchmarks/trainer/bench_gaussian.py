"""What the recipe `gaussian` gains: its renderer against a loop over Gaussians, and HFTS against training without it.

    python -m benchmarks.trainer.bench_gaussian            prints the table of benchmarks/results/gaussian.txt

Times are CPU seconds of one thread, which other work on the computer moves little.
"""

from __future__ import annotations

import platform
import resource
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from statistics import median

import numpy as np
import torch
from torch import nn

from trainer.api import Moment
from trainer.base.overrides import apply_overrides
from trainer.base.recipe import Workload
from trainer.data.batch import stack_samples
from trainer.generators.gaussian import generate
from trainer.metrics.images import psnr
from trainer.recipes.gaussian.camera import project
from trainer.recipes.gaussian.decoder import GaussianDecoder, Gaussians
from trainer.recipes.gaussian.render import MOST_ALPHA, render
from trainer.recipes.gaussian.workload import build_workload, compute_loss, recipe, view

# Shape legend: B batch, N Gaussians, H height, W width.
PICTURES, BATCH = 40, 4
PLAIN_STEPS, HFTS_STEPS, VALIDATE_EVERY = 30, 120, 0.1
MARKS = (16.0, 17.0, 18.0, 19.0, 20.0)
SETTINGS = ("data.held_out=0.2", "data.pixels=64", "model.dropout=0", "hfts.pixels=16")


def main() -> None:
    """Print both tables."""
    torch.set_num_threads(1)
    print("The Gaussian recipe: a picture of 37 x 37 x 4 = 5,476 Gaussians, forward and backward\n")
    print(f"{'pixels':>8}{'loop over Gaussians':>24}{'renderer':>12}{'ratio':>9}{'peak of memory':>18}")
    for pixels in (64, 256):
        compare_renderers(pixels)
    print("\nHFTS: CPU seconds of training steps to a PSNR of held-out pictures\n")
    compare_training()
    machine = (
        f"{platform.machine()}, {platform.system()}; Python {platform.python_version()}, torch {torch.__version__}"
    )
    print(f"\nCPU seconds of one thread; {time.strftime('%Y-%m-%d', time.gmtime())}; {machine}")


def compare_renderers(pixels: int) -> None:
    """Time a picture of a fresh decoder by both."""
    torch.manual_seed(0)
    model = GaussianDecoder(384, per_patch=4, dropout=0)
    with torch.no_grad():
        made = model(torch.randn(1, 384, 37, 37), torch.rand(1, 1, 256, 256))
    ours = median(clock(made, lambda parts: render(parts, pixels)) for _ in range(3))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    loop = clock(made, lambda parts: render_by_loop(parts, pixels))
    print(f"{pixels:>8}{loop:>22.1f} s{ours:>10.2f} s{loop / ours:>9.1f}{memory:>14.0f} MiB", flush=True)


def clock(made: Gaussians, draw: Callable[[Gaussians], tuple[torch.Tensor, torch.Tensor]]) -> float:
    """Return the CPU seconds of a forward and backward pass."""
    parts = Gaussians(*(part.clone().requires_grad_() for part in made))
    began = time.process_time()
    image, depth = draw(parts)
    torch.autograd.backward(image.square().sum() + depth.square().sum())
    return time.process_time() - began


def render_by_loop(gaussians: Gaussians, pixels: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Render one picture, one Gaussian after another, each within its box; the same picture as `render`."""
    splats = project(gaussians, pixels)
    sums_4HW, taken_HW = torch.zeros(4, pixels, pixels), torch.zeros(pixels, pixels)
    for n, box in enumerate(splats.boxes[0].long().tolist()):
        left, top = max(0, box[0]), max(0, box[2])
        right, bottom = min(pixels - 1, box[1]) + 1, min(pixels - 1, box[3]) + 1
        if left >= right or top >= bottom:
            continue
        dx = torch.arange(left, right) - splats.centres[0, n, 0]
        dy = torch.arange(top, bottom)[:, None] - splats.centres[0, n, 1]
        a, b, c = splats.conics[0, n]
        bell = (-0.5 * (a * dx * dx + 2 * b * dx * dy + c * dy * dy)).exp()
        alpha = (splats.opacities[0, n] * bell).clamp(max=MOST_ALPHA)
        inside = (slice(top, bottom), slice(left, right))
        share = alpha * (1 - taken_HW[inside])
        sums_4HW[(slice(None), *inside)] += splats.values[0, n][:, None, None] * share
        taken_HW[inside] += share
    return sums_4HW[None, :3], sums_4HW[None, 3]


@dataclass(frozen=True)
class Training:
    """One way to train: its name, its settings and its number of steps."""

    name: str
    settings: tuple[str, ...]
    steps: int


def compare_training() -> None:
    """Train the same decoder with and without HFTS, and print the time to each quality."""
    ways = [
        Training("plain", (), PLAIN_STEPS),
        Training("HFTS", ("hfts.enabled=true",), HFTS_STEPS),
        Training("HFTS with all Gaussians rendered", ("hfts.enabled=true", "hfts.kept=0"), PLAIN_STEPS),
    ]
    print(f"{'':>34}{'a step':>9}{'steps':>7}{'best':>10}" + "".join(f"{mark:>7.0f} dB" for mark in MARKS), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder), count=PICTURES, seed=0)
        for way in ways:
            curve = list(train(Path(folder), way))
            best = max(quality for _, quality in curve)
            times = [next((seconds for seconds, quality in curve if quality >= mark), None) for mark in MARKS]
            reached = "".join(f"{'-' if each is None else f'{each:.0f} s':>10}" for each in times)
            step = curve[-1][0] / way.steps
            print(f"{way.name:>34}{step:>7.2f} s{way.steps:>7}{best:>7.1f} dB{reached}", flush=True)


def train(folder: Path, way: Training) -> Iterator[tuple[float, float]]:
    """Train with AdamW and a cosine, and yield CPU seconds of steps so far, and the held-out PSNR."""
    settings = apply_overrides(recipe().settings, [f"data.folder={folder}", *SETTINGS, *way.settings])
    torch.manual_seed(0)
    workload = build_workload(settings)
    model = workload.model
    assert isinstance(model, nn.Module)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-5)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, way.steps)
    seconds, batches = 0.0, draw_batches(workload)
    for step in range(way.steps):
        began = time.process_time()
        loss = compute_loss(model.train(), next(batches), Moment(step=step, fraction=step / way.steps), settings)
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        seconds += time.process_time() - began
        if (step + 1) % round(VALIDATE_EVERY * way.steps) == 0:
            yield seconds, validate(model.eval(), workload)


def draw_batches(workload: Workload) -> Iterator[tuple[torch.Tensor, ...]]:
    """Read all training pictures once, and yield batches in random order."""
    data, rng = workload.train_data, np.random.default_rng(0)
    assert not hasattr(data, "open")
    scenes = [data.sample(i, rng) for i in range(len(data))]
    for _ in count():
        order = rng.permutation(len(scenes))
        for first in range(0, len(scenes) - BATCH + 1, BATCH):
            yield stack_samples([scenes[i] for i in order[first : first + BATCH]])


@torch.no_grad()
def validate(model: nn.Module, workload: Workload) -> float:
    """Return the PSNR of the held-out pictures, with all pixels and all Gaussians."""
    data = workload.validation_data
    scenes = [data.sample(i, np.random.default_rng(0)) for i in range(len(data))]
    values = [psnr(view(model, batch).images, batch[0]) for batch in (stack_samples([scene]) for scene in scenes)]
    return float(torch.cat(values).mean())


if __name__ == "__main__":
    main()
