"""Interleaved rounds, medians, ratios, verdicts: what all benchmarks share.

Only ratios within one run are meaningful: the contenders take turns, so that whatever else the computer does
affects all of them, and each round begins with another one.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

CHECKOUT = Path(__file__).resolve().parent.parent
RESULTS = Path(__file__).resolve().parent / "results"
BIN = Path(sys.executable).parent


@dataclass(frozen=True, kw_only=True)
class Contender:
    """What is timed.

    Attributes:
        run: runs once and returns the seconds that it took; preparation doesn't count.
        against: the name of the contender that it is compared with; empty for one that others are compared with.
        bar: the largest allowed ratio of medians; None for a row that is only informative.
    """

    name: str
    run: Callable[[], float]
    against: str = ""
    bar: float | None = None


@dataclass(kw_only=True)
class Benchmark:
    """A printed table: the contenders' times, and what a reader needs to know to judge them."""

    name: str
    title: str
    rounds: int
    notes: list[str] = field(default_factory=list)
    rows: list[tuple[str, ...]] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)

    def measure(self, contenders: Sequence[Contender]) -> None:
        """Let the contenders take turns, and add a row for each."""
        times: dict[str, list[float]] = {contender.name: [] for contender in contenders}
        for number in range(self.rounds):
            first = number % len(contenders)
            for contender in (*contenders[first:], *contenders[:first]):
                times[contender.name].append(contender.run())
        self.rows += [self._row(contender, times) for contender in contenders]

    def check(self, what: str, *, met: bool) -> None:
        """Add a limit on something that isn't a time."""
        self.rows.append((what, "", "", "", "", self._verdict(what, met=met)))

    def text(self) -> str:
        """Return the table."""
        header = ("", "median", "min", "ratio", "bar", "")
        return "\n".join([self.title, "", *aligned([header, *self.rows]), "", *self.notes, footer(self.rounds), ""])

    def _row(self, contender: Contender, times: Mapping[str, list[float]]) -> tuple[str, ...]:
        mine = times[contender.name]
        median = statistics.median(mine)
        shown = (contender.name, _seconds(median), _seconds(min(mine)))
        if not contender.against:
            return (*shown, "1", "", "")
        ratio = median / statistics.median(times[contender.against])
        if contender.bar is None:
            return (*shown, f"{ratio:.2f}", "", "")
        verdict = self._verdict(contender.name, met=ratio <= contender.bar)
        return (*shown, f"{ratio:.2f}", f"<= {contender.bar:.2f}", verdict)

    def _verdict(self, what: str, *, met: bool) -> str:
        if not met:
            self.missed.append(what)
        return "met" if met else "MISSED"


def main(name: str, title: str, fill: Callable[[Benchmark], None], *, rounds: int) -> None:
    """Run one benchmark as a script: print its table, write it with --write, exit with 1 if a limit is missed."""
    parser = argparse.ArgumentParser(description=title)
    parser.add_argument("--rounds", type=int, default=rounds, help=f"how often each takes its turn ({rounds})")
    parser.add_argument("--write", action="store_true", help=f"keep the table as results/{name}.txt")
    options = parser.parse_args()
    clean_up_after_signals()
    benchmark = Benchmark(name=name, title=title, rounds=options.rounds)
    try:
        fill(benchmark)
    except KeyboardInterrupt:
        sys.exit(130)
    print(benchmark.text(), flush=True)
    if options.write:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"{name}.txt").write_text(benchmark.text())
    sys.exit(1 if benchmark.missed else 0)


def clean_up_after_signals() -> None:
    """Let `kill` and a closed terminal clean up like Ctrl-C."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)


def timed(argv: Sequence[str], *, cwd: Path, env: Mapping[str, str]) -> float:
    """Run a command to its end and return the seconds that it took, its start included.

    Raises:
        RuntimeError: it failed.
    """
    begin = time.perf_counter()
    done = subprocess.run(argv, cwd=cwd, env=env, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    took = time.perf_counter() - begin
    if done.returncode != 0:
        said = (done.stderr or done.stdout).decode(errors="replace").strip()
        raise RuntimeError(f"{' '.join(argv)} exited with {done.returncode}: {said}")
    return took


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """Lend a folder whose path is short enough for sockets; it is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="kedge-bench-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _seconds(value: float) -> str:
    return f"{value * 1000:.0f} ms" if value < 10 else f"{value:.1f} s"


def footer(rounds: int) -> str:
    """Say how often, when and where a table was measured."""
    return f"{rounds} interleaved rounds, {when_and_where()}"


def when_and_where() -> str:
    """Say when and where a table was measured."""
    load = " ".join(f"{value:.1f}" for value in os.getloadavg())
    machine = f"{os.cpu_count()} cores ({platform.machine()}, {platform.system()}), load {load}"
    packages = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("invoke", "rich"))
    python = f"Python {platform.python_version()}"
    return f"{datetime.now(UTC):%Y-%m-%d}; {machine}; {python}; {packages}"


def aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """Return the lines of a table: the first column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [_line(row, widths) for row in rows]


def _line(row: tuple[str, ...], widths: Sequence[int]) -> str:
    first, *numbers = row
    cells = [first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(numbers, widths[1:], strict=True))]
    return "  ".join(cells).rstrip()
