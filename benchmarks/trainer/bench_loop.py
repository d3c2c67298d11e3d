"""What the trainer's loop costs against a bare one: per step, per batch loaded, per resume, per accumulated step."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from benchmarks.rounds import CHECKOUT, Benchmark, Contender, main
from benchmarks.trainer.loops import BATCH, Points
from trainer.base.sources import Batch, SampleSource
from trainer.data.loader import BatchLoader
from trainer.data.sources import ArraySource
from trainer.recipes.digits import load_split, shift_sample

ROUNDS = 7
BATCHES, EPOCHS = 1000, 10
TIMEOUT_SECONDS = 300
TORCHRUN = ("torch.distributed.run", "--standalone", "--nproc-per-node", "2")
PEER_PYTHON = "KEDGE_BENCH_PEER_PYTHON"


class Loops:
    """Runs each loop in its own process, and remembers its CPU time beside its wall time."""

    def __init__(self) -> None:
        self._cpu: dict[str, deque[float]] = defaultdict(deque)

    def run(self, kind: str, *launcher: str, python: str = sys.executable) -> float:
        """Run one loop and return the wall seconds of 1,000 steps."""
        argv = [python, *(("-m", *launcher) if launcher else ()), "-m", "benchmarks.trainer.loops", kind]
        env = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(CHECKOUT)}
        done = subprocess.run(
            argv, cwd=CHECKOUT, env=env, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False
        )
        line = next((line for line in done.stdout.splitlines() if line.startswith("seconds ")), None)
        if done.returncode or line is None:
            raise RuntimeError(f"{kind} exited with {done.returncode}: {done.stderr[-2000:]}")
        wall, cpu = (float(value) for value in line.split()[1:])
        self._cpu[kind].append(cpu)
        return wall

    def recall_cpu(self, kind: str, **_: str) -> float:
        """Return the CPU seconds of 1,000 steps, of the first run whose CPU time was not read yet."""
        return self._cpu[kind].popleft()


class Shifted(ArraySource, Dataset[Batch]):
    """The digits recipe's augmented images, also as a plain dataset: then one generator draws all shifts."""

    def __init__(self) -> None:
        train, _ = load_split()
        super().__init__(*train, transform=partial(shift_sample, pixels=1))
        self._rng = np.random.default_rng(0)

    def __getitem__(self, index: int) -> Batch:
        return self.sample(index, self._rng)


def fill(benchmark: Benchmark) -> None:
    """Time steps, batches, resumes, and accumulation on two ranks."""
    torch.set_num_threads(1)
    loops = Loops()
    benchmark.measure(steps(loops.run, "wall", bar=1.15))
    benchmark.measure(steps(loops.recall_cpu, "CPU time", bar=None))
    benchmark.measure(normalised_steps(loops))
    benchmark.measure(loaders())
    benchmark.measure(epochs())
    benchmark.measure(resumes())
    benchmark.measure(accumulations(loops))
    benchmark.notes += [
        f"steps: 1,000 of a 64-128-128-10 MLP at batch {BATCH}, its loss, clipping and AdamW, one thread; the loader's",
        "work counts, samples are two indexed tensors; a run's median piece of 100 steps, the first left out",
        "CPU time: the same runs by the CPU time of all threads, which other work on the computer moves less",
        "BatchNorm: the same with a batch normalisation after each of the two hidden layers",
        f"loader: {EPOCHS} epochs of digits, shifted at random, batches of {BATCH}, by CPU time; bar 1 / 0.97",
        "epochs: 100 epochs of one batch each, read by two worker processes that have been started before",
        f"resume: twenty starts of an epoch of {BATCHES:,} batches, to the first batch",
        "two ranks: gloo on this machine, 3.9 M parameters, 4 micro-batches of 8 a rank, 1,000 micro-batches; gaining",
        "0.9 of what no_sync gains is a time of 1 / 0.9",
        f"torch {torch.__version__}; peers run in a virtual environment of their own, with the same torch",
    ]


def steps(run: Callable[..., float], what: str, *, bar: float | None) -> list[Contender]:
    """List loops over the same network; a peer only if its interpreter is named."""
    peer = f"bare loop, {what}"
    contenders = [
        Contender(name=peer, run=lambda: run("bare")),
        Contender(name=f"kedge, all defaults on, {what}", run=lambda: run("kedge"), against=peer, bar=bar),
    ]
    python = os.environ.get(PEER_PYTHON)
    if python:
        contenders.append(
            Contender(name=f"accelerate, {what}", run=lambda: run("accelerate", python=python), against=peer)
        )
    return contenders


def normalised_steps(loops: Loops) -> list[Contender]:
    """List loops over a network with batch normalisation, whose statistics a skipped step has to restore."""
    peer = "bare loop, BatchNorm, wall"
    return [
        Contender(name=peer, run=lambda: loops.run("bare-normalised")),
        Contender(name="kedge, BatchNorm, wall", run=lambda: loops.run("kedge-normalised"), against=peer, bar=1.10),
    ]


def loaders() -> list[Contender]:
    """List loaders of the same samples."""
    digits, peer = Shifted(), "plain DataLoader"
    return [
        Contender(name=peer, run=lambda: _exhaust(lambda: iter(DataLoader(digits, batch_size=BATCH, shuffle=True)))),
        Contender(
            name="kedge: keyed samples", run=lambda: _exhaust(lambda: _batches(digits, 0)), against=peer, bar=1 / 0.97
        ),
    ]


def epochs() -> list[Contender]:
    """List loaders whose workers outlive an epoch."""
    points, peer = Points(BATCH), "DataLoader, 2 workers, 100 epochs"
    plain = DataLoader(points, batch_size=BATCH, shuffle=True, num_workers=2, persistent_workers=True)
    loader = BatchLoader(points, seed=0, device=torch.device("cpu"), workers=2)

    def read(start: Callable[[int], Iterator[object]]) -> float:
        list(start(0))
        begin = time.perf_counter()
        for epoch in range(1, 101):
            list(start(epoch))
        return time.perf_counter() - begin

    return [
        Contender(name=peer, run=lambda: read(lambda _: iter(plain))),
        Contender(
            name="kedge, 2 workers, 100 epochs",
            run=lambda: read(lambda epoch: loader.batches(epoch=epoch, batch_size=BATCH)),
            against=peer,
        ),
    ]


def resumes() -> list[Contender]:
    """List starts of an epoch, each until its first batch."""
    points, peer = Points(BATCH * BATCHES), "fresh start, first batch"
    return [
        Contender(name=peer, run=lambda: _first(lambda: _batches(points, 0))),
        Contender(
            name="resume at the 900th, first batch",
            run=lambda: _first(lambda: _batches(points, 900)),
            against=peer,
            bar=1.1,
        ),
    ]


def accumulations(loops: Loops) -> list[Contender]:
    """List loops of two ranks that accumulate four micro-batches."""
    peer = "two ranks: bare DDP with no_sync"
    return [
        Contender(name=peer, run=lambda: loops.run("ddp-no-sync", *TORCHRUN)),
        Contender(
            name="two ranks: kedge", run=lambda: loops.run("kedge-accumulating", *TORCHRUN), against=peer, bar=1 / 0.9
        ),
        Contender(
            name="two ranks: bare DDP without it",
            run=lambda: loops.run("ddp-every-micro-batch", *TORCHRUN),
            against=peer,
        ),
    ]


def _batches(source: SampleSource, first_step: int) -> Iterator[object]:
    loader = BatchLoader(source, seed=0, device=torch.device("cpu"))
    return loader.batches(epoch=0, batch_size=BATCH, first_step=first_step)


def _exhaust(start: Callable[[], Iterator[object]]) -> float:
    begin = time.process_time()
    for _ in range(EPOCHS):
        for _ in start():
            pass
    return time.process_time() - begin


def _first(start: Callable[[], Iterator[object]]) -> float:
    begin = time.perf_counter()
    for _ in range(20):
        next(start())
    return time.perf_counter() - begin


if __name__ == "__main__":
    main("loop", "The training loop beside a bare one", fill, rounds=ROUNDS)
