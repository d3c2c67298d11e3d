"""The job file infra/jobs/skull-dual.yaml, mode `both`, on this computer, with small sizes.

PCDiff goes on from a checkpoint of the original's layout, as two processes; voxelization is stopped and started again;
what both have written is fetched and opened.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from PIL import Image
from safetensors.torch import load_file

from tests.recipes.pcdiff.small import SETTINGS, make_network, save_original
from tests.recipes.pcdiff.written import check_samples
from tests.support.laptop import Laptop
from tests.support.waiting import wait_until
from trainer.generators import generate_data

JOB = Path(__file__).parents[2] / "infra" / "jobs" / "skull-dual.yaml"
SKULLS, VOXELS = Path("datasets", "SkullBreak"), Path("datasets", "voxelization")
TINY = {
    **{"batch_size": 1, "data.points": 64, "poisson.grid": 16, "log_every_steps": 1, "samples.every_steps": 10},
    **{"model.width": 8, "model.blocks": 2, "model.cells": 4, "model.levels": 2, "model.offsets": 2},
    **{"checkpoint.every_steps": 1, "validate.every_epochs": 0},
}
"""Voxelization's settings."""
MORE = 10
Row = dict[str, Any]


def render_settings(settings: Mapping[str, object]) -> str:
    """Return the flags of a recipe's settings."""
    return " ".join(f"--set {name}={value}" for name, value in settings.items())


ENVS = {
    **{"BATCH_SIZE": 16, "PROCESSES": 2, "EPOCHS": 2002, "WORKERS": 0, "SAMPLES_EVERY": 1, "VALIDATE_EVERY": 1},
    "EXTRA": render_settings(SETTINGS | {"log_every_steps": 1}),
    **{"VOX_EPOCHS": 100_000, "VOX_WORKERS": 0, "VOX_EXTRA": render_settings(TINY), "OMP_NUM_THREADS": 1},
}
"""Voxelization would train for days."""


@pytest.fixture
def laptop(laptop: Laptop) -> Laptop:
    """A user's computer with the job file, both data sets, and the original's checkpoint."""
    shutil.copy(JOB, laptop.home)
    for recipe, folder, count in (("pcdiff", SKULLS, 5), ("voxelization", VOXELS, 10)):
        generate_data(recipe, laptop.home / folder, count=count)
    save_original(laptop.home / SKULLS / "epoch_1999.pth")
    return laptop


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_one_of_two_trainings_is_stopped_and_goes_on_where_it_was(laptop: Laptop) -> None:
    """The other one isn't disturbed; both end, the machine too, and what they made can be used.

    Started again with another command, voxelization makes ten more steps than its last checkpoint has.
    """
    changes = [word for name, value in ENVS.items() for word in ("--env", f"{name}={value}")]
    words = ("--job", "skull-dual", "--mode", "both", "--provider", "local", *changes)
    run = laptop.json("launch", *words, "--yes", "--detach")["run"]
    wait_until(lambda: newest_step(laptop) > 0, seconds=300)
    assert "voxelization: stopped (an operator's stop)" in laptop.kedge("stop", "--task", "voxelization")
    last = newest_step(laptop) + MORE
    end_after(laptop, last)
    laptop.kedge("start", "--task", "voxelization", "--reread", "--yes")
    log = laptop.kedge("logs", "-f", run)
    assert re.search(rf"^voxelization +\| .*resumed from step {last - MORE} ", log, re.MULTILINE), log
    laptop.kedge("fetch", run)
    home = laptop.home / "kedge-results" / run
    steps = [row["step"] for row in read_rows(home / "voxelization" / "output") if "lr" in row]
    assert steps == list(range(1, last + 1))
    the_volume_and_the_network_agree(home / "voxelization" / "output")
    assert "goes on from epoch_1999.pth, another trainer's: epoch 2001 of 2002, 0 of 1 steps in" in log
    assert len(re.findall(r"^pcdiff +\| .*\[kedge\] started, attempt", log, re.MULTILINE)) == 1
    check_pcdiff(laptop, home / "pcdiff" / "output")
    laptop.kedge("teardown", run, "--yes", code=None)
    assert laptop.processes() == []


def end_after(laptop: Laptop, step: int) -> None:
    """Let voxelization end after a step: the user edits its command in the job file."""
    job = laptop.home / JOB.name
    before, after = '--set track.wandb="$WANDB" $VOX_EXTRA\n', f"$VOX_EXTRA --set max_steps={step}\n"
    assert job.read_text().count(before) == 1
    job.write_text(job.read_text().replace(before, after))


def newest_step(laptop: Laptop) -> int:
    """Return the step of the newest checkpoint that voxelization has on the machine, 0 for none."""
    paths = (laptop.state / "machines").glob("*/**/voxelization/**/step-*.safetensors")
    return max((int(path.stem.removeprefix("step-")) for path in paths), default=0)


def read_rows(output: Path) -> list[Row]:
    """Read the rows of metrics.jsonl."""
    return [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]


def check_pcdiff(laptop: Laptop, output: Path) -> None:
    """Two epochs more than the original, at the square root of twice its batch; weights, curves and samples."""
    assert json.loads((output / "status.json").read_text())["state"] == "succeeded"
    rows = read_rows(output)
    assert [(row["epoch"], row["lr"]) for row in rows if "lr" in row] == [
        (epoch, pytest.approx(2e-4 * 2**0.5, rel=1e-4)) for epoch in (2001, 2002)
    ]
    assert all(np.isfinite(row["val_chamfer"]) for row in rows if "val_loss" in row)
    make_network().load_state_dict(load_file(output / "model.safetensors"))
    assert_drawn(output / "curves.png")
    for epoch in (2001, 2002):
        samples = output / "samples" / f"epoch-{epoch:06}"
        check_samples(laptop.home / SKULLS, samples, cases=("004-bilateral", "004-frontoorbital"))


def the_volume_and_the_network_agree(output: Path) -> None:
    """Curves and slices are pictures; the volume has both signs; the ONNX file makes volumes of clouds."""
    samples = max((output / "samples").iterdir())
    for picture in (output / "curves.png", samples / "slices.png"):
        assert_drawn(picture)
    volume_GGG = np.load(samples / "volume.npz")["data"]
    assert volume_GGG.shape == (16, 16, 16)
    assert volume_GGG.min() < 0 < volume_GGG.max()
    session = onnxruntime.InferenceSession(str(output / "model.onnx"), providers=["CPUExecutionProvider"])
    clouds_BN3 = np.random.default_rng(0).random((3, 64, 3), dtype=np.float32)
    (volumes_BGGG,) = session.run(None, {"input": clouds_BN3})
    assert volumes_BGGG.shape == (3, 16, 16, 16)
    assert np.isfinite(volumes_BGGG).all()


def assert_drawn(path: Path) -> None:
    """Check that a picture isn't blank."""
    with Image.open(path) as picture:
        assert np.asarray(picture).std() > 0, path
