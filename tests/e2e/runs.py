"""A run's job, its progress, and ways to lose its machine."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal

import psutil

from orchestrator.adapters.store.folder import FolderBucket
from orchestrator.adapters.store.results import Results
from tests.support.laptop import Laptop
from tests.support.waiting import wait_until

JOB = """
    name: toy
    workdir: .
    run: python train.py
    outputs: [results]
    checkpoints: ckpt
    envs: {STEPS: 100000}
    deadline: 10m
    supervisor: {kind: %s, restarts: 0, grace: 10s}
"""
SHOWS_ITS_ENVIRONMENT = """
    name: toy
    run: |
      env >> $KEDGE_OUTPUT_DIR/env.txt
      echo start $KEDGE_RUN_ID >> $KEDGE_OUTPUT_DIR/starts.txt
      exec sleep 1000
    deadline: 10m
    supervisor: {kind: %s, restarts: 3}
"""


# Tests that wait read the machine's files: a kedge command for each look would start programs on both sides.


def step(laptop: Laptop) -> int:
    """Read the step that the command has reached on the newest machine."""
    lines = _file(laptop, "results/output/results/steps.log").splitlines()
    return int(lines[-1].split()[0]) if lines else 0


def log(laptop: Laptop) -> str:
    """Read the log of the newest machine."""
    return _file(laptop, "results/run.log")


def state(laptop: Laptop, run: str = "*") -> str:
    """Read the command's state from the newest machine of a run, or of the only one; empty if it has none yet."""
    return str(json.loads(_file(laptop, "state.json", run) or "{}").get("command", {}).get("state", ""))


def await_running(laptop: Laptop, run: str = "*") -> None:
    """Wait until the command runs: a detached launch returns when it is being set up."""
    wait_until(lambda: state(laptop, run) == "running")


def _file(laptop: Laptop, path: str, run: str = "*") -> str:
    """Read a file of the newest machine of a run, or of the only one; empty if there is none."""
    machines = sorted((laptop.state / "machines").glob(f"{run}-m?"))
    try:
        return (machines[-1] / path).read_text() if machines else ""
    except FileNotFoundError:
        return ""


def kill_machine(laptop: Laptop, run: str, number: int = 1) -> None:
    """Lose a machine with all its processes and its disk."""
    machine = f"{run}-m{number}"

    def processes() -> list[psutil.Process]:
        # The laptop's SSH clients, whose commands name the machine's folder, are not the machine's.
        return [process for process in laptop.processes(machine) if not _is_client(process)]

    # All are stopped first: none may see, and tell somebody, that another one is gone.
    for signum in (signal.SIGSTOP, signal.SIGKILL):
        for _ in range(5):
            for process in processes():
                send_if_there(process, signum)
    shutil.rmtree(laptop.state / "machines" / machine, ignore_errors=True)
    wait_until(lambda: not processes())


def _is_client(process: psutil.Process) -> bool:
    try:
        return bool(process.name() == "ssh")
    except psutil.NoSuchProcess:
        return True


def send_if_there(process: psutil.Process, signum: int) -> None:
    """Send a signal to a process that may be gone, or a zombie, by now."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(signum)


def shipped_step(laptop: Laptop, run: str) -> int:
    """Read the newest step in the object store."""
    paths = [file.path for file in Results(FolderBucket(laptop.state / "store")).manifest(run)]
    return max((int(path[-12:-4]) for path in paths if path.startswith("checkpoints/")), default=0)
