"""Programs that kedge calls on a machine, replaced by hostile ones."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

from tests.support.laptop import Laptop
from tests.support.waiting import wait_until

JOB = """
    name: %s
    workdir: .
    run: python train.py
    outputs: [results]
    envs: {STEPS: %d, PAUSE: 0.05}
    deadline: 10m
    supervisor: {kind: nohup, restarts: 0, grace: 5s}
"""
FOREVER = 100_000

ENDLESS = "exec yes 'all work and no play makes jack a dull boy'"


def launch(laptop: Laptop, name: str = "toy", *, steps: int = FOREVER) -> str:
    laptop.write_job(JOB % (name, steps))
    return str(laptop.json("launch", "--yes", "--detach")["run"])


def launch_and_ship(laptop: Laptop) -> str:
    """Run a command to its end, and wait until the store has its results."""
    run = launch(laptop, steps=2)
    wait_until(lambda: '"succeeded"' in manifest(laptop, run))
    return run


def manifest(laptop: Laptop, run: str) -> str:
    path = laptop.state / "store" / run / "manifest.json"
    return path.read_text() if path.exists() else ""


def folder(laptop: Laptop, run: str) -> Path:
    return laptop.state / "machines" / f"{run}-m1"


def put(laptop: Laptop, run: str, name: str, script: str) -> None:
    """Put a program of that name first on the machine's PATH."""
    path = folder(laptop, run) / "bin" / name
    aside = path.with_suffix(".aside")
    aside.write_text(f"#!/bin/bash\n{script}\n")
    aside.chmod(0o755)
    aside.replace(path)


def replace_verb(laptop: Laptop, run: str, verb: str, script: str) -> None:
    """Replace one verb of the agent by a script; `*` is every verb."""
    agent = folder(laptop, run) / "bin" / "kedge-agent"
    honest = agent.with_name("honest-agent")
    if not honest.exists():
        honest.write_bytes(agent.read_bytes())
        honest.chmod(0o755)
    put(
        laptop,
        run,
        "kedge-agent",
        f'case "$1" in\n{verb})\n{script}\n;;\n*) exec {shlex.quote(str(honest))} "$@" ;;\nesac',
    )


def say(laptop: Laptop, run: str, verb: str, answer: bytes) -> None:
    """Make one verb of the agent answer with these bytes."""
    path = folder(laptop, run) / "answer"
    path.write_bytes(answer)
    replace_verb(laptop, run, verb, f"cat {shlex.quote(str(path))}")


def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


def with_progress(report: dict[str, Any], text: str) -> bytes:
    """Put text that json.dumps wouldn't write into a report."""
    return json.dumps({**report, "progress": {"step": "@@"}}).replace('"@@"', text).encode()
