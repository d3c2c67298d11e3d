"""A project whose machines train together on point clouds, and what it is compared with."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np

_HERE = Path(__file__).parent
_SCRIPT = _HERE / "train_clouds.py"
ENVS = {"OMP_NUM_THREADS": "1", "SAVE_EVERY": "5"}
JOB = """
    name: clouds
    workdir: code
    num_nodes: {nodes}
    data: {{clouds: ./clouds}}
    run: python -m torch.distributed.run train_clouds.py
    outputs: [results]
    checkpoints: checkpoints
    envs: {{STEPS: {steps}, HOLDS: "{holds}", SAVE_EVERY: 5, OMP_NUM_THREADS: 1, KEDGE_TORCH_WHEEL: none}}
    deadline: 10m
    budget: 5
    supervisor: {{kind: tmux, restarts: 1, restart_after: 1s, grace: 5s}}
    resources: {resources}
"""
"""Its script checkpoints every five steps. After each step of `holds` it waits for the loss of a machine."""


def make_project(home: Path) -> None:
    """Write the script, and eight small point clouds."""
    (home / "code").mkdir(parents=True)
    shutil.copy(_SCRIPT, home / "code")
    (home / "clouds").mkdir()
    numbers = np.random.default_rng(3)
    for number in range(8):
        np.save(home / "clouds" / f"{number}.npy", numbers.normal(size=(32, 3)).astype("float32"))


def train_undisturbed(folder: Path, *, ranks: int, steps: int) -> dict[int, float]:
    """Train on this computer with so many processes, and return the loss of each step."""
    make_project(folder)
    shutil.move(folder / "clouds", folder / "code")
    # It ends the ranks, too.
    argv = ["timeout", "120", sys.executable, str(_HERE / "train_alone.py"), _SCRIPT.name, str(ranks)]
    environ = {"STEPS": str(steps), "PATH": "/usr/bin:/bin", **ENVS}
    subprocess.run(argv, cwd=folder / "code", env=environ, check=True)
    return dict(read_losses(folder / "code" / "results"))


def read_losses(results: Path) -> list[tuple[int, float]]:
    """Return the step and the loss of each line, in the order of their writing."""
    lines = (results / "metrics.jsonl").read_text().splitlines()
    return [(each["step"], each["loss"]) for each in map(json.loads, lines)]
