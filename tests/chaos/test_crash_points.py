"""Nothing is left billing: a launch is killed at every point, and the next commands find and finish everything."""

from __future__ import annotations

import pytest

from tests.support.laptop import Laptop
from tests.support.samples import part_of

DRIVER = "crashing_launch.py"
JOB = """
    name: toy
    workdir: .
    outputs: [results]
    checkpoints: ckpt
    envs: {STEPS: 2, PAUSE: 0.01}
    deadline: 10m
    supervisor: {kind: nohup, restarts: 0, grace: 5s}
"""
ONE = "    run: python train.py\n"
TWO = "    tasks: {first: {run: python train.py}, second: {after: first, run: python train.py}}\n"
TASKS = {"one": [""], "two": ["first", "second"]}
"""The folders of the tasks' results, by the kind of job."""
WRITES = 21
"""How often the launch of either job writes to the ledger; the last test counts."""
POINTS = [(job, moment, number) for job in TASKS for moment in ("before", "after") for number in range(1, WRITES + 1)]
SAMPLE = 14
"""How many of the points each run tries; `make nightly` tries all."""


def crash(laptop: Laptop, job: str, moment: str, number: int) -> int:
    """Launch, kill the launch at this point, and return its exit code."""
    laptop.write_job(JOB + {"one": ONE, "two": TWO}[job])
    return laptop.drive(DRIVER, moment, str(number)).returncode


@pytest.mark.parametrize(("job", "moment", "number"), part_of(POINTS, SAMPLE))
def test_a_killed_launch_is_listed_finished_and_cleaned_up(laptop: Laptop, job: str, moment: str, number: int) -> None:
    """The status shows what exists, resume finishes the run, and teardown leaves nothing."""
    assert crash(laptop, job, moment, number) == -9
    there = {machine.id for machine in laptop.provider().machines()}
    statuses = laptop.json("status", "--all")
    if (moment, number) == ("before", 1):
        assert (statuses, there) == ([], set())
        return
    (status,) = statuses
    assert {machine["id"] for machine in status["machines"]} == there
    run = status["run"]
    laptop.kedge("resume", run, "--yes")
    for task in TASKS[job]:
        folder = laptop.home / "kedge-results" / run / task / "output" / "results"
        assert (folder / "model.txt").read_text() == "trained for 2 steps"
        steps = [int(line.split()[0]) for line in (folder / "steps.log").read_text().splitlines()]
        assert steps == [1, 2], "a task that has succeeded isn't started again"
    laptop.kedge("teardown", run, "--yes")
    assert laptop.processes() == []
    assert list((laptop.state / "machines").iterdir()) == []
    ledger = laptop.ledger()
    assert ledger.open_intents(run) == ()
    assert ledger.machines(live_only=True) == ()
    assert ledger.runs(live_only=True) == ()
    ledger.close()


@pytest.mark.parametrize("job", TASKS)
def test_every_write_of_a_launch_is_a_crash_point(laptop: Laptop, job: str) -> None:
    """The test fails if a launch makes one more write, which the points above would miss."""
    assert crash(laptop, job, "after", WRITES + 1) == 0
