"""The task in skull-dual.yaml fits the machine that it rents."""

from __future__ import annotations

import itertools
import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from trainer.base.overrides import apply_overrides
from trainer.recipes.voxelization import recipe
from trainer.recipes.voxelization.data import SkullPairs, list_pairs
from trainer.recipes.voxelization.settings import VoxelizationSettings
from trainer.recipes.voxelization.workload import VOXELS

INFRA = Path(__file__).parents[3] / "infra"
JOB: dict[str, Any] = yaml.safe_load((INFRA / "jobs" / "skull-dual.yaml").read_text())
MACHINES: dict[str, Any] = json.loads((INFRA / "aws" / "offers.json").read_text())["types"]


def settings_of(mode: str) -> VoxelizationSettings:
    """Read what the command sets, from the shell's words."""
    task = JOB["modes"][mode]["tasks"]["voxelization"]
    variables = {name: str(value) for name, value in {**JOB["envs"], **task["envs"]}.items()}
    shell = ["bash", "-euc", f'python3() {{ printf "%s\\n" "$@"; }}\n{task["run"]}']
    done = subprocess.run(shell, env={"PATH": "/usr/bin:/bin", **variables}, capture_output=True, text=True, check=True)
    words = done.stdout.splitlines()
    return apply_overrides(recipe().settings, [word for before, word in itertools.pairwise(words) if before == "--set"])


@pytest.mark.parametrize(("mode", "machine"), [("voxelization", "g6e.xlarge"), ("both", "p4de.24xlarge")])
def test_the_loaders_fit_into_the_machines_main_memory(made: Path, mode: str, machine: str) -> None:
    """Each process of both loaders has two batches ahead, and one in the making with its samples."""
    (pair, *_), _ = list_pairs(made, 0.2)
    volume = SkullPairs([pair], grid=32).sample(0, np.random.default_rng(0))["bone"]
    settings = settings_of(mode)
    batch_gib = settings.batch_size * VOXELS**3 * volume.element_size() / 2**30
    loaders_gib = 2 * settings.workers * 4 * batch_gib
    assert loaders_gib <= 0.6 * MACHINES[machine]["memory_gib"]
    assert settings.workers < MACHINES[machine]["cpus"]


@pytest.mark.parametrize("mode", ["voxelization", "both"])
def test_volumes_are_decoded_in_the_first_epoch_only(mode: str) -> None:
    """A second for each of 512^3 would be 150 s an epoch with three loaders, and 1,300 epochs of that take two days."""
    settings = settings_of(mode)
    assert settings.data.cache == f"{settings.data.folder}/decoded"


def test_it_is_validated_every_ten_epochs_as_by_the_original() -> None:
    for mode in ("voxelization", "both"):
        settings = settings_of(mode)
        assert (settings.validate.every_epochs, settings.epochs, settings.batch_size) == (10, 1300, 4)
    assert settings_of("rehearse").max_steps == 2
