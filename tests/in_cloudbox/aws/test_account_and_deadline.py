"""The real program against the box, in an account that kedge itself sets up: machines past their deadline."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from tests.cloudbox.aws.box import Box
from tests.cloudbox.aws.launches import instances
from tests.cloudbox.aws.leftovers import leftovers
from tests.in_cloudbox.deadlines import bring_deadline_near, timers
from tests.support.laptop import Laptop
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

JOB = """
    name: toy
    workdir: .
    start: boot
    run: python3 patient.py
    outputs: [results]
    checkpoints: ckpt
    deadline: 10m
    budget: 5
    resources: {accelerators: T4, use_spot: true, region: us-east-1}
    supervisor: {kind: systemd, restarts: 0, grace: 20s}
"""
# It saves only when it is asked to end.
PATIENT = """\
import pathlib, signal, sys, time

def save(number, frame):
    pathlib.Path("ckpt").mkdir(exist_ok=True)
    pathlib.Path("ckpt/last.txt").write_text(f"{time.time()}")
    sys.exit(0)

signal.signal(signal.SIGTERM, save)
print("training", flush=True)
time.sleep(3600)
"""
SOON = 25
"""Seconds from the moment at which the command works until the deadline."""


@pytest.fixture
def laptop(box: Box, laptop: Laptop) -> Iterator[Laptop]:
    """A user's computer with an AWS account in which nothing was ever created."""
    laptop.extra_env |= {**box.env, "KEDGE_PROVIDER": "aws", "KEDGE_SSH_FROM": "127.0.0.1/32"}
    (laptop.home / "patient.py").write_text(PATIENT)
    yield laptop
    assert box.billing() == [], "something is left billing"
    assert leftovers(box) == []


def state(box: Box) -> str:
    """Return the state of the only instance."""
    (instance,) = instances(box)
    return str(instance["State"]["Name"])


def deadline(laptop: Laptop) -> datetime:
    """Return the deadline of the only run's machine, from `status`."""
    (status,) = laptop.json("status")
    return datetime.fromisoformat(status["machines"][0]["deadline_at"])


def test_at_its_deadline_a_machine_saves_and_ends_by_itself(box: Box, laptop: Laptop) -> None:
    """The laptop is gone: the command checkpoints when it is stopped, the bucket has it, and nothing bills."""
    laptop.kedge("bootstrap", "--provider", "aws", "--yes")
    laptop.write_job(JOB)
    run = laptop.json("launch", "--env", "KEDGE_TORCH_WHEEL=none", "--detach", "--yes")["run"]
    wait_until(lambda: "training" in laptop.kedge("logs"), seconds=120)
    ends_at = bring_deadline_near(laptop, seconds=SOON)
    wait_until(lambda: state(box) == "terminated", seconds=SOON + 120)
    (instance,) = instances(box)
    assert instance["StateReason"]["Code"] == "Client.InstanceInitiatedShutdown"
    laptop.kedge("fetch", run, "--to", "home")
    saved_at = float((laptop.home / "home" / "checkpoints" / "last.txt").read_text())
    assert ends_at - SOON <= saved_at <= ends_at
    assert box.billing() == []
    # The checkpoint for `resume` stays until the run is ended.
    laptop.kedge("teardown", run, "--yes")


def test_an_extended_machine_outlives_its_old_deadline_and_ends_at_the_new_one(box: Box, laptop: Laptop) -> None:
    """Timer, agent, schedule, tags and ledger are moved together; another computer sees the new deadline, too."""
    laptop.kedge("bootstrap", "--provider", "aws", "--yes")
    laptop.write_job(JOB)
    run = laptop.json("launch", "--env", "KEDGE_TORCH_WHEEL=none", "--detach", "--yes")["run"]
    wait_until(lambda: "training" in laptop.kedge("logs"), seconds=120)
    before = deadline(laptop)
    old = bring_deadline_near(laptop, seconds=90) + 30
    laptop.json("extend", "2h", "--yes")
    after = deadline(laptop)
    assert abs(after - before - timedelta(hours=2)) < timedelta(seconds=2)
    timer, agent = timers(laptop)
    assert after.timestamp() - 30 <= timer <= after.timestamp()
    assert agent == timer - 30
    assert abs(schedule(box) - after - timedelta(minutes=5)) < timedelta(seconds=2)
    (instance,) = instances(box)
    (tag,) = [each["Value"] for each in instance["Tags"] if each["Key"] == "kedge-deadline"]
    assert abs(datetime.fromisoformat(tag) - after) < timedelta(seconds=30)
    ledger = laptop.ledger()
    (machine,) = ledger.machines(run)
    ledger.close()
    assert abs(machine.deadline_at - after) < timedelta(seconds=2)
    wait_until(lambda: time.time() > old + 3, seconds=180)
    laptop.kedge("exec", "--", "true")
    assert state(box) == "running"
    assert "asked to stop" not in laptop.kedge("logs")
    bring_deadline_near(laptop, seconds=5)
    wait_until(lambda: state(box) == "terminated", seconds=120)
    laptop.kedge("teardown", run, "--yes", "--no-fetch")


def test_aws_ends_a_machine_that_cannot_end_itself(box: Box, laptop: Laptop) -> None:
    """Its timer and its watch are off, and no laptop is there: EventBridge ends it, five minutes after the deadline."""
    laptop.kedge("bootstrap", "--provider", "aws", "--yes")
    laptop.write_job(JOB)
    run = laptop.json("launch", "--detach", "--yes")["run"]
    laptop.kedge("exec", "--admin", "--", "sudo", "systemctl", "stop", "kedge-deadline.timer", "kedge-watch.service")
    due = schedule(box)
    assert abs(due - deadline(laptop) - timedelta(minutes=5)) < timedelta(minutes=1)
    left = (due - datetime.now(UTC)).total_seconds()
    box.advance_schedules(left - 30)
    laptop.kedge("exec", "--", "true")
    assert state(box) == "running"
    box.advance_schedules(left + 1)
    wait_until(lambda: state(box) == "terminated")
    assert box.billing() == []
    laptop.kedge("teardown", run, "--yes", "--no-fetch")


def schedule(box: Box) -> datetime:
    """Return the time of the only schedule."""
    scheduler = box.client("scheduler")
    (listed,) = scheduler.list_schedules()["Schedules"]
    expression = scheduler.get_schedule(Name=listed["Name"])["ScheduleExpression"]
    (instant,) = re.findall(r"^at\((.+)\)$", expression)
    return datetime.fromisoformat(instant).replace(tzinfo=UTC)
