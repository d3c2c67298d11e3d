"""How much memory and processor time the agent takes on a machine with no task, one task, and eight."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.laptop import BenchLaptop, bench_laptop
from benchmarks.rounds import RESULTS, aligned, clean_up_after_signals, when_and_where

SECONDS = 120
SETTLE_SECONDS = 15.0
TASKS = (0, 1, 8)
MOST_MIB = 40.0
MOST_PERCENT = 1.0
COMMAND = 'i=0; while :; do i=$((i+1)); echo "step $i"; echo "{}" > $KEDGE_OUTPUT_DIR/status.json; sleep 1; done'
_START_SECONDS = 60.0
_MIB = 1024


@dataclass(frozen=True, kw_only=True)
class Use:
    """What the agent's processes of one machine take together.

    Attributes:
        processes: how many there are.
        pss_mib: memory; a page that several processes share is divided between them (PSS, proc(5)).
        percent: of one core.
    """

    processes: int
    pss_mib: float
    percent: float


def main() -> None:
    """Measure each number of tasks, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=SECONDS, help=f"how long to measure each ({SECONDS})")
    parser.add_argument("--tasks", type=int, action="append", help="measure only this many tasks; repeatable")
    parser.add_argument("--write", action="store_true", help="keep the table in results/agent.txt")
    options = parser.parse_args()
    clean_up_after_signals()
    uses = {count: measure(count, options.seconds) for count in options.tasks or TASKS}
    text = table(uses, options.seconds)
    print(text)
    if options.write:
        (RESULTS / "agent.txt").write_text(text)
    sys.exit(0 if all(is_met(use) for use in uses.values()) else 1)


def is_met(use: Use) -> bool:
    """Whether it is within the bars."""
    return use.pss_mib <= MOST_MIB and use.percent <= MOST_PERCENT


def table(uses: dict[int, Use], seconds: int) -> str:
    """Return the table."""
    rows = [("tasks", "processes", "memory (PSS)", "of a core", "")]
    rows += [
        (
            str(count),
            str(use.processes),
            f"{use.pss_mib:.1f} MiB",
            f"{use.percent:.2f} %",
            "met" if is_met(use) else "MISSED",
        )
        for count, use in uses.items()
    ]
    notes = [
        f"bars: <= {MOST_MIB:g} MiB and <= {MOST_PERCENT:g} % of a core for all processes of the agent together",
        "a local machine with an object store; each task writes a line and a status.json every second",
        f"processor time over {seconds} s, from the scheduler; memory at their end",
    ]
    return "\n".join(
        ["The agent's watch and runners on one machine", "", *aligned(rows), "", *notes, when_and_where(), ""]
    )


def measure(count: int, seconds: int) -> Use:
    """Start a machine with so many tasks, and measure once all are running."""
    with machine(count) as agent_folder:
        await_running(agent_folder.parent, count)
        time.sleep(SETTLE_SECONDS)
        before = cpu_seconds(agent_folder)
        began = time.monotonic()
        time.sleep(seconds)
        used, took = cpu_seconds(agent_folder) - before, time.monotonic() - began
        found = agents(agent_folder)
        return Use(processes=len(found), pss_mib=sum(map(pss_mib, found)), percent=100 * used / took)


@contextmanager
def machine(count: int) -> Iterator[Path]:
    """Lend a local machine that runs so many tasks; yields the folder with its agent's programs."""
    with bench_laptop() as laptop:
        write_job(laptop, count)
        laptop.kedge("launch", "--detach", "--yes", *(["--job", "kedge.yaml"] if count else ["--provider", "local"]))
        yield next(laptop.state.glob("machines/*")) / "bin"


def write_job(laptop: BenchLaptop, count: int) -> None:
    """Write the job file."""
    if count == 0:
        return
    lines = ["name: bench", "workdir: .", "resources: {infra: local}", "expect: {duration: 1h}", "deadline: 2h"]
    (laptop.home / "train.sh").write_text(COMMAND)
    if count == 1:
        lines.append("run: bash train.sh")
    else:
        lines += ["tasks:", *(f"  task{number}: {{run: bash train.sh}}" for number in range(count))]
    (laptop.home / "kedge.yaml").write_text("\n".join(lines) + "\n")


def await_running(root: Path, count: int) -> None:
    """Wait until every task has written a line."""
    give_up = time.monotonic() + _START_SECONDS
    while sum("step 1" in path.read_text() for path in root.glob("results/**/run.log")) < count:
        if time.monotonic() > give_up:
            raise RuntimeError("not all tasks have started")
        time.sleep(0.2)


def agents(agent_folder: Path) -> list[psutil.Process]:
    """List the machine's watch and runners."""
    found = []
    for process in psutil.process_iter():
        try:
            words = process.cmdline()
        except psutil.Error:
            continue
        if "python" in " ".join(words[:1]) and str(agent_folder / "kedge-agent") in words:
            found.append(process)
    return found


def cpu_seconds(agent_folder: Path) -> float:
    """Return what the agent's processes and the children that they have reaped have used."""
    return sum(map(_cpu_seconds, agents(agent_folder)))


def _cpu_seconds(process: psutil.Process) -> float:
    """Return a process's time; that of its threads is precise, as the scheduler counts nanoseconds (schedstat)."""
    threads = Path(f"/proc/{process.pid}/task").glob("*/schedstat")
    # The time of a runner's reaped children is the command's.
    return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9


def pss_mib(process: psutil.Process) -> float:
    """Return a process's proportional set size."""
    lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / _MIB


if __name__ == "__main__":
    main()
