"""A run's job, its progress, and ways to lose its machine."""

from __future__ import annotations

import contextlib
import shutil

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


def step(laptop: Laptop) -> int:
    """Read the step that the command has reached from its machine."""
    lines = laptop.kedge("exec", "--", "cat", "results/steps.log", code=None).splitlines()
    return int(lines[-1].split()[0]) if lines else 0


def kill_machine(laptop: Laptop, run: str) -> None:
    """Lose a machine with all its processes and its disk."""
    for _ in range(5):
        for process in laptop.processes(f"{run}-m1"):
            kill_if_there(process)
    shutil.rmtree(laptop.state / "machines" / f"{run}-m1", ignore_errors=True)
    wait_until(lambda: not laptop.processes(f"{run}-m1"))


def kill_if_there(process: psutil.Process) -> None:
    """SIGKILL a process that may be gone, or a zombie, by now."""
    with contextlib.suppress(psutil.NoSuchProcess):
        process.kill()


def shipped_step(laptop: Laptop, run: str) -> int:
    """Read the newest step in the object store."""
    paths = [file.path for file in Results(FolderBucket(laptop.state / "store")).manifest(run)]
    return max((int(path[-12:-4]) for path in paths if path.startswith("checkpoints/")), default=0)
