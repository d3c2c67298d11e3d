"""Networks in training on a device, for the benchmark on a GPU: in a bare loop, and with the trainer."""

from __future__ import annotations

import io
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import Dataset

from benchmarks.trainer.networks import CLASSES
from trainer.base.config import ComputeSettings, Settings
from trainer.base.contract import read_contract
from trainer.base.recipe import Recipe, Workload
from trainer.base.signals import StopFlag
from trainer.base.sources import Batch
from trainer.run.engine import run_recipe

# Shape legend: B batch, C channels, H height, W width.
LEARNING_RATE, CLIP_NORM = 1e-3, 1.0
DEVICE = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
# A CPU may emulate it, which takes minutes.
HAS_BF16 = DEVICE.type == "cuda"


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How much is measured."""

    rounds: int = 3
    steps: int = 60
    chunk: int = 10
    images: int = 256
    pixels: int = 224
    rows: int = 32
    length: int = 512
    width: int = 512
    layers: int = 8
    vocabulary: int = 32_000
    state_tensors: int = 40
    state_elements: int = 12_500_000
    loaded_batches: int = 30
    workers: int = min(8, os.cpu_count() or 1)


SMALL = Sizes(
    rounds=1, steps=4, chunk=1, images=2, pixels=32, rows=2, length=16, width=64, layers=2, vocabulary=100,
    state_tensors=4, state_elements=500_000, loaded_batches=4, workers=1,
)  # fmt: skip


class Numbers:
    """Samples that are numbers: the loss takes its inputs from the device, so that only the loop is compared."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def sample(self, index: int, _rng: np.random.Generator) -> Batch:
        return torch.tensor(index)


class Crops(Dataset[Batch]):
    """Random crops of pictures in memory, flipped and normalised: a loader's work without decoding."""

    def __init__(self, count: int, pixels: int) -> None:
        self.count, self.pixels = count, pixels
        self.pictures = np.random.default_rng(0).integers(0, 256, (16, pixels + 32, pixels + 32, 3), dtype=np.uint8)
        self.rng = np.random.default_rng(0)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Batch:
        return self.sample(index, self.rng)

    def sample(self, index: int, rng: np.random.Generator) -> Batch:
        top, left, flip = (int(number) for number in rng.integers(0, (32, 32, 2)))
        crop_HWC = self.pictures[index % 16, top : top + self.pixels, left : left + self.pixels]
        image_CHW = torch.from_numpy(np.ascontiguousarray(crop_HWC[:, :: -1 if flip else 1].transpose(2, 0, 1)))
        return image_CHW.float().div_(255).sub_(0.45).div_(0.22), torch.tensor(index % CLASSES)


@dataclass(kw_only=True)
class Task:
    """A network with one batch that stays on the device, and the times at which its loss was computed."""

    name: str
    make: Callable[[], nn.Module]
    inputs: torch.Tensor
    labels: torch.Tensor
    sizes: Sizes
    marks: list[float] = field(default_factory=list)
    calls: int = 0
    latest: float = 0.0
    """The seconds of a step of the latest run with the trainer."""

    def loss(self, model: nn.Module, _batch: Batch) -> torch.Tensor:
        """Note the time before each piece of the run, when the device has finished the former one."""
        if self.calls % self.sizes.chunk == 0:
            synchronise()
            self.marks.append(time.perf_counter())
        self.calls += 1
        return functional.cross_entropy(model(self.inputs).flatten(0, -2), self.labels.flatten())

    def seconds(self) -> float:
        """Return the seconds of a step, by the median piece without the first; forget the times."""
        pieces = np.diff(self.marks[1:])
        self.marks, self.calls = [], 0
        return statistics.median(pieces.tolist()) / self.sizes.chunk

    def bare(self) -> float:
        """Train as a plain script does: the same precision, clipping and optimizer, and nothing else."""
        model = self.make().to(DEVICE)
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's annotation lacks it
        optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, fused=True)
        for _ in range(self.sizes.steps):
            with torch.autocast(DEVICE.type, dtype=torch.bfloat16, enabled=HAS_BF16):
                loss = self.loss(model, None)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
            nn.utils.clip_grad_norm_(model.parameters(), CLIP_NORM)
            optimizer.step()
        return self.seconds()

    def kedge(self) -> float:
        """Train with the trainer's defaults: metrics, status, checkpoints, a stop between any two steps."""
        batch = len(self.inputs)
        train(self.make, self.loss, Numbers(batch * self.sizes.steps), batch, workers=0)
        self.latest = self.seconds()
        return self.latest


def train(
    make: Callable[[], nn.Module],
    loss: Callable[[nn.Module, Batch], torch.Tensor],
    source: Numbers | Crops,
    batch_size: int,
    *,
    workers: int,
    log_every: int = 10,
) -> list[dict[str, float]]:
    """Train an epoch, and return the rows of metrics.jsonl."""

    def build(_: Settings) -> Workload:
        return Workload(
            model=make(),
            train_data=source,
            validation_data=Numbers(1),
            loss=loss,
            metrics=lambda _model, batch: {"loss": torch.zeros(len(batch), device=DEVICE)},
        )

    compute = ComputeSettings(amp="bf16" if HAS_BF16 else "off", channels_last=True)
    settings = Settings(
        epochs=1,
        batch_size=batch_size,
        workers=workers,
        compute=compute,
        onnx=False,
        curves=False,
        log_every_steps=log_every,
    )
    recipe = Recipe(settings=settings, build=build)
    with lent_folder() as folder:
        with redirect_stdout(io.StringIO()):
            run_recipe("digits", recipe, read_contract({}, output_dir=folder), StopFlag())
        return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@contextmanager
def lent_folder() -> Iterator[Path]:
    """Lend a folder on disk; it is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="kedge-bench-", dir="/var/tmp", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def synchronise() -> None:
    """Wait until the device has computed everything that is queued."""
    if DEVICE.type == "cuda":
        torch.cuda.synchronize()
