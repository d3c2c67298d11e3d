"""A learning bar: what is trained on which data, and the metric that has to be reached."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from orchestrator.core.protocol.choice import Choice
from orchestrator.core.protocol.results import ResultFile

ROOT = Path(__file__).parents[2]
QUIET = ("curves=false", "onnx=false")
"""Settings that leave out what takes time after a training."""


@dataclass(frozen=True, kw_only=True)
class LearningBar:
    """A short training on generated data, and the value that it has to reach.

    Args:
        recipe: its name; also the generator's and the check's.
        count: generated samples.
        settings: for `--set`, but data.folder and seed.
        metric: a name in metrics.jsonl, such as `val_psnr`; its best value in the run counts.
        better: the metric's better direction.
        reach: the bar.
        untrained: computes, from the data's folder, the best value that a predictor reaches which has learnt nothing of
            the inputs: the best constant, or the untrained model.
    """

    recipe: str
    count: int
    settings: tuple[str, ...]
    metric: str
    better: Literal["min", "max"]
    reach: float
    untrained: Callable[[Path], float]

    def is_reached(self, value: float) -> bool:
        """Tell whether a value is as good as the bar."""
        return value >= self.reach if self.better == "max" else value <= self.reach


@dataclass(frozen=True, kw_only=True)
class Learnt:
    """What a training has reached.

    Attributes:
        value: the metric's best value.
        untrained: that of the untrained predictor.
        written: bytes of all that the run has written.
        fetched: bytes that `kedge fetch` brings of them, unless it is told otherwise.
    """

    value: float
    untrained: float
    seconds: float
    written: int
    fetched: int


def learn(bar: LearningBar, folder: Path, *, seed: int, settings: Sequence[str] = (), threads: int = 1) -> Learnt:
    """Generate the data, check them, and train, in an empty folder, which holds all files afterwards.

    Args:
        bar: what is trained.
        folder: for the data and the run.
        seed: the data's and the run's.
        settings: for `--set`, after the bar's own.
        threads: of torch. On a busy computer two, which wait for each other, may be 40 times slower than one.

    Raises:
        RuntimeError: one of them failed.
    """
    data = folder / "data"
    _trainer(threads, "generate", bar.recipe, str(data), f"--count={bar.count}", f"--seed={seed}")
    _trainer(threads, "check", bar.recipe, "--data", str(data))
    sets = [f"--set={each}" for each in (f"data.folder={data}", f"seed={seed}", *bar.settings, *settings)]
    began = time.monotonic()
    _trainer(threads, bar.recipe, *sets, f"--output-dir={folder / 'run'}")
    seconds = time.monotonic() - began
    rows = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    values = [row[bar.metric] for row in rows if row.get(bar.metric) is not None]
    best = max(values) if bar.better == "max" else min(values)
    written, fetched = _bytes(folder / "run")
    return Learnt(value=best, untrained=bar.untrained(data), seconds=seconds, written=written, fetched=fetched)


def _bytes(run: Path) -> tuple[int, int]:
    """Return how much a run has written, and how much of it is fetched by default."""
    paths = [path for path in run.rglob("*") if path.is_file()]
    files = [ResultFile(path=str(path.relative_to(run)), bytes=path.stat().st_size, sha256="") for path in paths]
    fetched = Choice(leaves_steps=True).of(files)
    return sum(file.bytes for file in files), sum(file.bytes for file in fetched)


def _trainer(threads: int, *words: str) -> None:
    environ = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    argv = [sys.executable, "-m", "trainer", *words]
    done = subprocess.run(argv, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(
            f"trainer {' '.join(words)}: exit {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        )
