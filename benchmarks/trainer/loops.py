"""One loop over a small network, for bench_loop: `python -m benchmarks.trainer.loops KIND`; prints its seconds."""

from __future__ import annotations

import contextlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

# Shape legend: B batch, C channels.
LEARNING_RATE, CLIP_NORM = 1e-3, 1.0
BATCH, STEPS, CHUNK = 32, 2000, 100
# Two ranks, four micro-batches each.
RANKS, ACCUMULATION, MICRO_BATCH, BIG_STEPS, BIG_CHUNK = 2, 4, 8, 60, 10
WIDTH, BIG_WIDTH = 128, 1376
Sample = tuple[torch.Tensor, torch.Tensor]


class Points(Dataset[Sample]):
    """Random points and classes, ready in memory; a source for the trainer and a dataset for the others."""

    def __init__(self, count: int) -> None:
        generator = torch.Generator().manual_seed(0)
        self.points_BC = torch.randn(count, 64, generator=generator)
        self.labels_B = torch.randint(10, (count,), generator=generator)

    def __len__(self) -> int:
        return len(self.labels_B)

    def __getitem__(self, index: int) -> Sample:
        return self.points_BC[index], self.labels_B[index]

    def sample(self, index: int, _rng: np.random.Generator) -> tuple[torch.Tensor, ...]:
        return self.points_BC[index], self.labels_B[index]


class Laps:
    """Notes the time at each loss: everything that a loop does between two losses is timed."""

    def __init__(self, chunk: int) -> None:
        self.chunk = chunk
        self.wall: list[float] = []
        self.cpu: list[float] = []

    def loss(self, model: nn.Module, batch: tuple[torch.Tensor, ...]) -> torch.Tensor:
        self.wall.append(time.perf_counter())
        self.cpu.append(time.process_time())
        points_BC, labels_B = batch
        return nn.functional.cross_entropy(model(points_BC), labels_B)

    def seconds(self, marks: list[float]) -> float:
        """Return the seconds of 1,000 losses, from the median piece: other work on the computer disturbs some."""
        pieces = np.diff(marks[self.chunk :: self.chunk])  # the first piece warms up
        return statistics.median(pieces.tolist()) / self.chunk * 1000


def make_model(width: int) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), *_more(width), nn.Linear(width, 10)
    )


def make_normalised_model(width: int) -> nn.Module:
    """The same with batch normalisation: running statistics that a skipped step has to restore."""
    torch.manual_seed(0)
    hidden = (nn.Linear(width, width), nn.BatchNorm1d(width), nn.ReLU())
    return nn.Sequential(nn.Linear(64, width), nn.BatchNorm1d(width), nn.ReLU(), *hidden, nn.Linear(width, 10))


def bare(laps: Laps) -> None:
    """What a plain script does: the same loss, clipping and optimizer, and nothing else."""
    _train_bare(laps, make_model(WIDTH))


def bare_normalised(laps: Laps) -> None:
    """The same with batch normalisation."""
    _train_bare(laps, make_normalised_model(WIDTH))


def _train_bare(laps: Laps, model: nn.Module) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, fused=True)
    for batch in _loader():
        loss = laps.loss(model, batch)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        nn.utils.clip_grad_norm_(model.parameters(), CLIP_NORM)
        optimizer.step()


def accelerate(laps: Laps) -> None:
    """The loop of accelerate's quick tour, with clipping."""
    from accelerate import Accelerator  # type: ignore[import-not-found]  # in a virtual environment of its own

    accelerator = Accelerator(cpu=True)
    model = make_model(WIDTH)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, fused=True)
    model, optimizer, batches = accelerator.prepare(model, optimizer, _loader())
    for batch in batches:
        with accelerator.accumulate(model):
            loss = laps.loss(model, batch)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), CLIP_NORM)
            optimizer.step()
            optimizer.zero_grad()


def kedge(laps: Laps) -> None:
    """The trainer with its defaults: metrics, status, checkpoints, stall watch, a stop between any two steps."""
    _train(laps, WIDTH, batch_size=BATCH, steps=STEPS, micro_batch=0)


def kedge_normalised(laps: Laps) -> None:
    """The same with batch normalisation."""
    _train(laps, WIDTH, batch_size=BATCH, steps=STEPS, micro_batch=0, make=make_normalised_model)


def ddp_every_micro_batch(laps: Laps) -> None:
    """Bare DDP that averages gradients after each micro-batch."""
    _ddp(laps, lambda _model, _is_last: contextlib.nullcontext())


def ddp_no_sync(laps: Laps) -> None:
    """Bare DDP that averages gradients with the last micro-batch only."""
    _ddp(laps, lambda model, is_last: contextlib.nullcontext() if is_last else model.no_sync())


def kedge_accumulating(laps: Laps) -> None:
    """The trainer on the same batches."""
    _train(laps, BIG_WIDTH, batch_size=RANKS * ACCUMULATION * MICRO_BATCH, steps=BIG_STEPS, micro_batch=MICRO_BATCH)


def _train(
    laps: Laps,
    width: int,
    *,
    batch_size: int,
    steps: int,
    micro_batch: int,
    make: Callable[[int], nn.Module] = make_model,
) -> None:
    from trainer.base.config import Settings
    from trainer.base.contract import read_contract
    from trainer.base.recipe import Recipe, Workload
    from trainer.base.signals import StopFlag
    from trainer.run.engine import run_recipe

    def build(_: Settings) -> Workload:
        return Workload(
            model=make(width),
            train_data=Points(batch_size * steps),
            validation_data=Points(batch_size),
            loss=laps.loss,
            metrics=lambda model, batch: {
                "loss": nn.functional.cross_entropy(model(batch[0]), batch[1], reduction="none")
            },
        )

    settings = Settings(epochs=1, batch_size=batch_size, micro_batch=micro_batch)
    with tempfile.TemporaryDirectory(prefix="kedge-bench-") as folder:
        contract = read_contract(os.environ, output_dir=Path(folder))
        run_recipe("digits", Recipe(settings=settings, build=build), contract, StopFlag())


def _ddp(laps: Laps, synchronised) -> None:  # type: ignore[no-untyped-def]  # a context for (model, is_last)
    dist.init_process_group("gloo")
    model = DistributedDataParallel(make_model(BIG_WIDTH))
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, fused=True)
    points = Points(RANKS * ACCUMULATION * MICRO_BATCH * BIG_STEPS)
    batches = DataLoader(points, batch_size=MICRO_BATCH, sampler=DistributedSampler(points), drop_last=True)
    for number, batch in enumerate(batches, start=1):
        is_last = number % ACCUMULATION == 0
        with synchronised(model, is_last):
            (laps.loss(model, batch) / ACCUMULATION).backward()  # type: ignore[no-untyped-call]
        if is_last:
            nn.utils.clip_grad_norm_(model.parameters(), CLIP_NORM)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
    dist.destroy_process_group()


def _loader() -> DataLoader[Sample]:
    return DataLoader(Points(BATCH * STEPS), batch_size=BATCH, shuffle=True, drop_last=True)


def _more(width: int) -> list[nn.Module]:
    return [nn.Linear(width, width), nn.ReLU()] if width == BIG_WIDTH else []


KINDS = {
    "bare": bare,
    "bare-normalised": bare_normalised,
    "accelerate": accelerate,
    "kedge": kedge,
    "kedge-normalised": kedge_normalised,
    "ddp-every-micro-batch": ddp_every_micro_batch,
    "ddp-no-sync": ddp_no_sync,
    "kedge-accumulating": kedge_accumulating,
}

if __name__ == "__main__":
    torch.set_num_threads(1)
    alone = "RANK" not in os.environ
    clock = Laps(CHUNK if alone else BIG_CHUNK * ACCUMULATION)
    KINDS[sys.argv[1]](clock)
    if os.environ.get("RANK", "0") == "0":
        print(f"seconds {clock.seconds(clock.wall)} {clock.seconds(clock.cpu)}")
