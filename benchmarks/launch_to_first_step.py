"""How long a launch takes to reach the first training step, measured against another version of kedge.

The other version is a checkout of its own with its own `.venv`:

    git worktree add /tmp/before 22dcda2 && make -C /tmp/before setup
    .venv/bin/python benchmarks/launch_to_first_step.py /tmp/before
"""

from __future__ import annotations

import argparse
import ctypes
import os
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage

import psutil

from benchmarks.bench_launch import seconds_to_first_step, started
from benchmarks.laptop import BenchLaptop, bench_laptop
from benchmarks.rounds import CHECKOUT, RESULTS, aligned, clean_up_after_signals, footer

ROUNDS = 15
BAR = 1.0
NOISE = 0.03
"""How much a ratio may be above the bar: two series of equal launches differ by this on a shared computer."""
_PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True)
class Launch:
    """One launch, up to its first step.

    Attributes:
        seconds: since its process was started.
        cpu_seconds: of all of its processes, in user and system mode; those of the training are included.
    """

    seconds: float
    cpu_seconds: float


@dataclass
class Version:
    """A checkout of kedge, and the launches that it has made."""

    checkout: Path
    launches: list[Launch] = field(default_factory=list)

    @property
    def label(self) -> str:
        """Name it in the table."""
        return "this version" if self.checkout == CHECKOUT else f"{self.checkout.name}"

    def launch(self, laptop: BenchLaptop) -> Launch:
        """Launch in empty folders, and return what it took to reach the first step."""
        laptop.wipe()
        commands = self.checkout / ".venv" / "bin"
        argv = [str(commands / "kedge"), "launch", "--job", "digits", "--mode", "validate", "--yes"]
        env = {**laptop.env, "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}"}
        reap_adopted()
        before = ended_cpu_seconds()
        with started(argv, cwd=laptop.home, env=env) as process:
            seconds = seconds_to_first_step(process, laptop.state / "machines", "*/results/output/metrics.jsonl")
            cpu_seconds = live_cpu_seconds() + ended_cpu_seconds() - before
        laptop.wipe()
        return Launch(seconds, cpu_seconds)


def main() -> None:
    """Measure both versions in turn, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peer", type=Path, help="the checkout of the other version, which has a .venv")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"launches of each version ({ROUNDS})")
    parser.add_argument("--write", action="store_true", help="keep the table in results/launch_to_first_step.txt")
    options = parser.parse_args()
    clean_up_after_signals()
    adopt_descendants()
    versions = [Version(options.peer.resolve()), Version(CHECKOUT)]
    measure(versions, options.rounds)
    text = table(versions, options.rounds)
    print(text)
    if options.write:
        (RESULTS / "launch_to_first_step.txt").write_text(text)
    sys.exit(0 if is_met(versions) else 1)


def measure(versions: Sequence[Version], rounds: int) -> None:
    """Let the versions take turns; each round begins with another one."""
    with bench_laptop() as laptop:
        for version in versions:
            version.launch(laptop)  # reads the files into the page cache
        for number in range(rounds):
            for version in versions if number % 2 else versions[::-1]:
                version.launches.append(version.launch(laptop))


def table(versions: Sequence[Version], rounds: int) -> str:
    """Return the table."""
    rows: list[tuple[str, ...]] = [("", "median", "quartile", "min", "CPU, median", "CPU, min")]
    rows += [(version.label, *figures(version)) for version in versions]
    seconds, cpu = paired(versions, "seconds"), paired(versions, "cpu_seconds")
    rows.append(("this version / the other, median of the rounds", f"{seconds:.2f}", "", "", f"{cpu:.2f}", ""))
    return "\n".join(
        [
            "From a launch to the first training step, against another version of kedge",
            "",
            *aligned(rows),
            "",
            f"bar: <= {BAR:.2f} within {NOISE:.2f}, for time and CPU: {'met' if is_met(versions) else 'MISSED'}",
            "from the start of `kedge launch --job digits --mode validate` to the first training row in metrics.jsonl;",
            "CPU: user and system time of all processes meanwhile, the training's included (torch's import: 1.5 s)",
            footer(rounds),
            "",
        ]
    )


def figures(version: Version) -> tuple[str, ...]:
    """Return a version's cells."""
    seconds = [launch.seconds for launch in version.launches]
    cpu = [launch.cpu_seconds for launch in version.launches]
    quartile = statistics.quantiles(seconds, n=4)[0]
    shown = (statistics.median(seconds), quartile, min(seconds), statistics.median(cpu), min(cpu))
    return tuple(f"{value:.2f} s" for value in shown)


def paired(versions: Sequence[Version], what: str) -> float:
    """Return the median of each round's ratio: the other load of a shared computer changes from round to round."""
    peer, present = ([float(getattr(each, what)) for each in version.launches] for version in versions)
    return statistics.median(mine / theirs for mine, theirs in zip(present, peer, strict=True))


def is_met(versions: Sequence[Version]) -> bool:
    """Whether this version takes no more time, and no more of the processor."""
    return max(paired(versions, "seconds"), paired(versions, "cpu_seconds")) <= BAR + NOISE


def adopt_descendants() -> None:
    """Become the parent of processes whose own one ends, so that their CPU time is known."""
    if ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError("this benchmark needs Linux")


def reap_adopted() -> None:
    """Reap the adopted processes that have ended."""
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return


def ended_cpu_seconds() -> float:
    """Return the CPU time of all descendants that have ended, as far as their parents have reaped them."""
    used = getrusage(RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def live_cpu_seconds() -> float:
    """Return the CPU time of all live descendants, and of those that they have reaped."""
    total = 0.0
    for process in psutil.Process().children(recursive=True):
        try:
            total += sum(process.cpu_times()[:4])
        except psutil.NoSuchProcess:
            continue
    return total


if __name__ == "__main__":
    main()
