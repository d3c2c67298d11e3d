"""Machines of a run on AWS in the box train together, and go on together when one is lost."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from tests.adapters.aws.world import set_up
from tests.cloudbox.aws.box import Box
from tests.cloudbox.aws.leftovers import leftovers
from tests.in_cloudbox.aws.runs import instance_of, is_shipped
from tests.in_cloudbox.gangs import JOB, make_project, read_losses, train_undisturbed
from tests.support.laptop import Laptop
from tests.support.waiting import wait_until

SPOT = "{accelerators: T4, use_spot: true, region: us-east-1}"


@pytest.fixture
def laptop(box: Box, laptop: Laptop) -> Iterator[Laptop]:
    """A user's computer with an AWS account and a project."""
    set_up(box)
    laptop.extra_env |= {**box.env, "KEDGE_PROVIDER": "aws", "KEDGE_SSH_FROM": "127.0.0.1/32"}
    make_project(laptop.home)
    yield laptop
    assert box.billing() == [], "something is left billing"


def test_lost_machines_cost_the_steps_since_the_last_checkpoint(box: Box, laptop: Laptop) -> None:
    """Of two, first the one is taken back without a notice, and then the head.

    The run ends by itself, and the losses of all steps are those of an undisturbed run, to the last bit.
    """
    steps = 25
    laptop.write_job(JOB.format(nodes=2, steps=steps, holds="12 22", resources=SPOT))
    launch = laptop.start("launch", "--recover", "--yes")
    wait_until(lambda: laptop.json("status", "--ledger"), pause=1)
    run = laptop.json("status", "--ledger")[0]["run"]
    for rank, checkpoint in ((1, "step-0010.pt"), (0, "step-0020.pt")):
        wait_until(partial(is_shipped, box, run, checkpoint), seconds=240, pause=1)
        box.reclaim(instance_of(box, laptop, run, rank), notice_seconds=None)
    said, errors = launch.communicate(timeout=300)
    assert launch.returncode == 0, said + errors
    assert said.count("; the machine is replaced") == 2, said
    results = laptop.home / "kedge-results" / run
    found = read_losses(results / "output" / "results")
    expected = train_undisturbed(laptop.home.parent / "undisturbed", ranks=2, steps=steps)
    assert [loss for _, loss in found] == [expected[step] for step, _ in found]
    assert {step for step, _ in found} == set(expected)
    repeated = len(found) - steps
    assert 0 <= repeated <= 4, "twice the two steps after a checkpoint"
    began = [line.split(" ", 1)[1] for line in (results / "run.log").read_text().splitlines() if " ranks " in line]
    assert began == ["2 ranks begin", "2 ranks go on from step 10", "2 ranks go on from step 20"]
    assert "Nothing was written" not in said, "the head has written results"
    assert leftovers(box) == []
