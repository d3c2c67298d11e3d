"""The job file `pcdiff-scaling`: on two machines of AWS in the box, of which some are lost, and on this computer.

Only sizes are other ones: a network of a quarter's width, 120 points, 24 steps, machines with one GPU each.
"""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from safetensors.torch import load_file

from tests.adapters.aws.world import set_up
from tests.cloudbox.aws.box import Box
from tests.cloudbox.aws.launches import instances
from tests.cloudbox.aws.leftovers import leftovers
from tests.in_cloudbox.aws.runs import instance_of, is_shipped
from tests.recipes.pcdiff.small import SETTINGS, make_network
from tests.recipes.pcdiff.written import check_samples
from tests.support.laptop import Laptop
from tests.support.waiting import wait_until
from trainer.generators.pcdiff import generate

JOB = Path(__file__).parents[3] / "infra" / "jobs" / "pcdiff-scaling.yaml"
DATA = Path("datasets", "SkullBreak")
METRICS = "/opt/kedge/results/output/metrics.jsonl"
STEPS, WARMUP = 24, 10
"""40 cases in batches of 16: two steps an epoch."""
EXTRA = {**SETTINGS, "log_every_steps": 1, "checkpoint.every_steps": 5, "samples.every_steps": STEPS}
ENVS = {
    **{"BATCH_SIZE": 16, "EPOCHS": 1000, "MAX_STEPS": STEPS, "WARMUP_EPOCHS": WARMUP // 2, "VALIDATE_EVERY": 1000},
    **{"WORKERS": 0, "OMP_NUM_THREADS": 1, "KEDGE_TORCH_WHEEL": "none"},
    "EXTRA": " ".join(f"--set {name}={value}" for name, value in EXTRA.items()),
}
TRAINS = "'python[^ ]* -u -m [t]rainer pcdiff'"
"""Matches the processes that torchrun starts, as pkill takes it from a shell."""
Row = dict[str, Any]


@pytest.fixture
def laptop(laptop: Laptop) -> Laptop:
    """A user's computer with the job file, and ten skulls beside it."""
    shutil.copy(JOB, laptop.home)
    folder = laptop.home / DATA
    folder.mkdir(parents=True)
    generate(folder, count=9, seed=0)
    return laptop


@pytest.fixture
def account(box: Box, laptop: Laptop) -> Iterator[Box]:
    """The user's AWS account, where nothing may be left."""
    set_up(box)
    laptop.extra_env |= {**box.env, "KEDGE_SSH_FROM": "127.0.0.1/32"}
    yield box
    assert box.billing() == [], "something is left billing"
    assert leftovers(box) == []


@pytest.mark.timeout(1500)
def test_two_machines_train_as_two_processes_do_although_both_are_lost_in_turn(account: Box, laptop: Laptop) -> None:
    """First the second one is taken back without a notice, then the head; each is replaced, by itself.

    Every step is there once. Losses, weights and samples are those of an undisturbed run, to the last bit, and so are
    those of the steps that were made before a loss and repeated after it.
    """
    words = ("--instance-type", "g4dn.xlarge", "--spot")
    launch = laptop.start(*launch_words("nodes-2", PROCESSES=1, SCALING="linear"), *words)
    wait_until(lambda: laptop.json("status", "--ledger"), pause=1)
    run = laptop.json("status", "--ledger")[0]["run"]
    wait_until(lambda: "booted" in laptop.kedge("exec", run, "--", "echo", "booted", code=None), seconds=240, pause=1)
    # As on AWS, the others notice a silent machine, after 25 s, before it is replaced.
    account.set_states(pending_seconds=25, ending_seconds=0.5)
    before = lose_machine(account, laptop, run, 1, after=7)
    before += lose_machine(account, laptop, run, 0, after=17)
    said, errors = launch.communicate(timeout=400)
    assert launch.returncode == 0, said + errors
    assert said.count("; the machine is replaced") == 2, said
    assert [each["InstanceType"] for each in instances(account)] == ["g4dn.xlarge"] * 4
    results = laptop.home / "kedge-results" / run
    log = (results / "run.log").read_text()
    assert "on 2 x cpu" in log
    assert "batch 16 = 2 x 8" in log
    assert re.findall(r"resumed from step (\d+)", log) == ["5", "15"]
    rows = check_history(results, rate=read_rate(gpus=2, scaling="linear"))
    assert {row["step"] for row in before} >= {6, 7, 16, 17}, "these were repeated"
    losses = {row["step"]: row["loss"] for row in rows}
    assert [row["loss"] for row in before] == [losses[row["step"]] for row in before]
    check_output(laptop, results)
    undisturbed = train_here(laptop, SCALING="linear")
    assert_same_training(results, undisturbed)


def test_on_this_computer_the_rate_follows_the_square_root_of_the_batch(laptop: Laptop) -> None:
    """With two processes; with more steps than warm-up, the highest rate is the table's."""
    results = train_here(laptop, SCALING="sqrt")
    assert "batch 16 = 2 x 8" in (results / "run.log").read_text()
    check_history(results, rate=read_rate(gpus=2, scaling="sqrt"))
    check_output(laptop, results)


def launch_words(mode: str, **envs: object) -> list[str]:
    """Return the launch of a mode with small sizes."""
    changes = [word for name, value in {**ENVS, **envs}.items() for word in ("--env", f"{name}={value}")]
    return ["launch", "--job", "pcdiff-scaling", "--mode", mode, *changes, "--yes"]


def train_here(laptop: Laptop, **envs: object) -> Path:
    """Train with two processes on this computer, and return the folder of the results."""
    found = laptop.home / "kedge-results"
    known = set(found.glob("pcdiff-scaling-*"))
    laptop.kedge(*launch_words("rehearse", PROCESSES=2, **envs))
    (results,) = set(found.glob("pcdiff-scaling-*")) - known
    return results


def lose_machine(box: Box, laptop: Laptop, run: str, rank: int, *, after: int) -> list[Row]:
    """Take a machine back without a notice after a step, and return the rows that the head has written until then.

    The head's training is stopped meanwhile, so that its newest checkpoint can be uploaded, and some steps have to be
    repeated.
    """
    hold = f"until grep -qs '\"step\": {after},' {METRICS}; do sleep 0.05; done; pkill -STOP -f {TRAINS}"
    laptop.kedge("exec", run, "--", "timeout", "400", "sh", "-c", hold)
    wait_until(lambda: is_shipped(box, run, f"step-{after // 5 * 5:08}.safetensors"), seconds=240, pause=1)
    written = laptop.kedge("exec", run, "--", "cat", METRICS)
    box.reclaim(instance_of(box, laptop, run, rank), notice_seconds=None)
    if rank != 0:
        laptop.kedge("exec", run, "--", "sh", "-c", f"pkill -CONT -f {TRAINS}")
    return read_rows(written)


def read_rate(*, gpus: int, scaling: str) -> float:
    """Read the rate from the job file's table, in the row whose batch is this test's."""
    table = re.findall(r"^# +(\d+) +(\d+) +(\S+) +(\S+)$", JOB.read_text(), re.MULTILINE)
    ((batch, linear, square_root),) = (row[1:] for row in table if row[0] == str(gpus))
    assert int(batch) == ENVS["BATCH_SIZE"]
    return float({"linear": linear, "sqrt": square_root}[scaling])


def read_rows(text: str) -> list[Row]:
    """Parse the rows of metrics.jsonl."""
    return [json.loads(line) for line in text.splitlines()]


def check_history(results: Path, *, rate: float) -> list[Row]:
    """Check that every step has one row, in order, with a rate that warms up to `rate`; return the steps' rows."""
    rows = read_rows((results / "output" / "metrics.jsonl").read_text())
    assert all(math.isfinite(value) for row in rows for value in row.values())
    trained = [row for row in rows if "lr" in row]
    assert [row["step"] for row in trained] == list(range(1, STEPS + 1))
    expected = [rate * min(1, step / WARMUP) for step in range(1, STEPS + 1)]
    assert [row["lr"] for row in trained] == pytest.approx(expected, rel=1e-3)
    (validated,) = (row for row in rows if "val_chamfer" in row)
    assert validated["step"] == STEPS
    return trained


def check_output(laptop: Laptop, results: Path) -> None:
    """Open the weights, the curves and the samples."""
    output = results / "output"
    make_network().load_state_dict(load_file(output / "model.safetensors"))
    assert read_picture(output / "curves.png").std() > 10
    samples = output / "samples" / f"step-{STEPS:08}"
    check_samples(laptop.home / DATA, samples, cases=("008-bilateral", "008-frontoorbital"))


def assert_same_training(results: Path, undisturbed: Path) -> None:
    """Compare losses, validation, weights and samples bit by bit."""
    figures = ("step", "loss", "lr", "val_loss", "val_chamfer")
    found, expected = (
        [
            {name: row[name] for name in figures if name in row}
            for row in read_rows((folder / "output" / "metrics.jsonl").read_text())
        ]
        for folder in (results, undisturbed)
    )
    assert found == expected
    ours, theirs = (load_file(folder / "output" / "model.safetensors") for folder in (results, undisturbed))
    assert ours.keys() == theirs.keys()
    assert [name for name, weight in ours.items() if not torch.equal(weight, theirs[name])] == []
    for path in sorted((results / "output" / "samples").rglob("*.ply")):
        assert path.read_bytes() == (undisturbed / path.relative_to(results)).read_bytes()


def read_picture(path: Path) -> NDArray[np.uint8]:
    """Decode a picture."""
    with Image.open(path) as picture:
        return np.asarray(picture)
