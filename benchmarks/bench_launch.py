"""How long a launch takes to reach the first training step, measured against the trainer started by hand."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from benchmarks.laptop import KEDGE, BenchLaptop, bench_laptop
from benchmarks.rounds import CHECKOUT, Benchmark, Contender, main

ROUNDS = 7
TIMEOUT_SECONDS = 120.0
PAUSE_SECONDS = 0.005
EPOCHS = 5
BY_HAND = "python -m trainer digits, by hand"


def fill(benchmark: Benchmark) -> None:
    """Time both to their first training step."""
    with bench_laptop() as laptop:
        contenders = [
            Contender(name=BY_HAND, run=partial(by_hand, laptop)),
            Contender(name="kedge launch --job digits", run=partial(launch, laptop), against=BY_HAND, bar=1.50),
        ]
        for contender in contenders:
            contender.run()  # reads the files into the page cache
        benchmark.measure(contenders)
    benchmark.notes += [
        f"from the start of the process to the first training row in metrics.jsonl; digits, {EPOCHS} epochs",
        "launch: plan, machine, code, setup, tmux; a state folder without a key or a ledger each time",
    ]


def by_hand(laptop: BenchLaptop) -> float:
    """Time the trainer."""
    laptop.wipe()
    argv = [sys.executable, "-m", "trainer", "digits", "--set", f"epochs={EPOCHS}"]
    env = {**laptop.env, "PYTHONPATH": str(CHECKOUT), "KEDGE_OUTPUT_DIR": str(laptop.home / "output")}
    with started(argv, cwd=laptop.home, env=env) as process:
        return seconds_to_first_step(process, laptop.home, "output/metrics.jsonl")


def launch(laptop: BenchLaptop) -> float:
    """Time a launch."""
    laptop.wipe()
    argv = [KEDGE, "launch", "--job", "digits", "--mode", "validate", "--yes"]
    with started(argv, cwd=laptop.home, env=laptop.env) as process:
        took = seconds_to_first_step(process, laptop.state / "machines", "*/results/output/metrics.jsonl")
    laptop.wipe()
    return took


@contextlib.contextmanager
def started(argv: Sequence[str], *, cwd: Path, env: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """Start a command, and end it afterwards; its output goes to a file."""
    with (cwd / "said.log").open("wb") as log:
        process = subprocess.Popen(
            argv, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def seconds_to_first_step(process: subprocess.Popen[bytes], folder: Path, pattern: str) -> float:
    """Wait until the training has logged a step, and return the seconds since this was called.

    Raises:
        RuntimeError: it ended, or took too long.
    """
    begin = time.perf_counter()
    while time.perf_counter() - begin < TIMEOUT_SECONDS:
        if any(has_train_row(path) for path in folder.glob(pattern)):
            return time.perf_counter() - begin
        if process.poll() is not None:
            break
        time.sleep(PAUSE_SECONDS)
    raise RuntimeError(f"{process.args!r} reached no step; exit code {process.poll()}")


def has_train_row(path: Path) -> bool:
    """Return whether a metrics.jsonl has a row of a training step."""
    with contextlib.suppress(FileNotFoundError, ValueError):
        return any("loss" in json.loads(line) for line in path.read_text().splitlines())
    return False


if __name__ == "__main__":
    main("launch", "From a launch to the first training step, on this computer", fill, rounds=ROUNDS)
