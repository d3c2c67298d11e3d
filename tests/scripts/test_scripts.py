"""Five users' scripts in parallel: their machines wait for most of the time."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.adapters.aws.world import set_up
from tests.cloudbox.aws.box import Box
from tests.cloudbox.aws.leftovers import leftovers
from tests.e2e.runs import kill_machine
from tests.scripts.journey import SCRIPTS, Place, go_all
from tests.support.box_cache import ALL
from tests.support.laptop import Laptop

ON_AWS = ("progress_bars", "output_dir")
"""Packages and results, a resume command, checkpoints that are files and folders."""


@pytest.mark.timeout(600)
def test_scripts_on_this_computer_end_as_if_nothing_had_been_lost(laptop: Laptop) -> None:
    """Each dies by SIGKILL, then its machine with its disk: results are those of undisturbed trainings."""
    # The user works in a virtual environment that has torch.
    programs = Path(sys.executable).parent
    laptop.extra_env |= {"VIRTUAL_ENV": sys.prefix, "PATH": f"{programs}:{laptop.env['PATH']}"}
    machines = laptop.state / "machines"
    place = Place(
        flags=("--provider", "local", "--price", "1.99"),
        state_file=lambda run: machines / f"{run}-m1" / "state.json",
        lose_machine=lambda run: kill_machine(laptop, run),
    )
    go_all(laptop, place)
    assert laptop.processes() == []
    assert list(machines.iterdir()) == []


@pytest.mark.timeout(600)
def test_scripts_on_aws_end_as_if_nothing_had_been_lost(box: Box, laptop: Laptop) -> None:
    """Each dies by SIGKILL, then AWS takes its machine without notice: results are those of undisturbed trainings.

    `make nightly` takes all of them: whether a checkpoint is complete is decided as on this computer, and
    tests/agent/test_checkpoint_copies.py tries each kind with S3.
    """
    scripts = SCRIPTS if ALL in os.environ else [script for script in SCRIPTS if script.name in ON_AWS]
    set_up(box)
    laptop.extra_env |= {**box.env, "KEDGE_SSH_FROM": "127.0.0.1/32"}

    def lose_machine(run: str) -> None:
        named = [{"Name": "tag:Name", "Values": [f"{run}*"]}]
        (found,) = box.client("ec2").describe_instances(Filters=named)["Reservations"]
        box.reclaim(found["Instances"][0]["InstanceId"], notice_seconds=None)

    place = Place(
        # None of the box's GPUs works for the torch of the images: none is tried.
        flags=(*("--provider", "aws", "--gpu", "t4", "--spot", "--budget", "5"), "--env", "KEDGE_TORCH_WHEEL=none"),
        state_file=lambda _run: Path("/opt/kedge/state.json"),
        lose_machine=lose_machine,
    )
    go_all(laptop, place, scripts)
    assert len(box.client("ec2").describe_instances()["Reservations"]) == 2 * len(scripts)
    assert box.billing() == []
    assert leftovers(box) == []
