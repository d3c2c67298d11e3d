"""How many calls of AWS's control plane the real program makes after the plan is confirmed.

Measured here, with the spot machine of a job that starts at boot; `docs/aws-calls.md` says what each call is for:

| | kedge | at most | SkyPilot |
|---|---|---|---|
| a run's first machine | 9 | 12 | 37 |
| another machine of the run | 3 | 3 | 18 |
| teardown | 3 | 3 | 7 |
| the run's end | 6 | | |
"""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.adapters.aws.world import set_up
from tests.cloudbox.aws.box import Box, Seen
from tests.cloudbox.aws.launches import instances
from tests.support.laptop import TRAIN, Laptop
from tests.support.waiting import wait_until

TABLE = Path(__file__).parents[3] / "docs" / "aws-calls.md"
JOB = """
    name: toy
    workdir: .
    start: boot
    run: python3 train.py
    outputs: [results]
    checkpoints: ckpt
    envs: {STEPS: 100000, PAUSE: 0.2}
    deadline: 10m
    budget: 5
    resources: {accelerators: T4, use_spot: true, region: us-east-1}
"""

OBSERVATIONS = frozenset(
    {"DescribeStacks", "DescribeInstanceTypes", "DescribeImages", "GetParameters", "GetRole", "GetCallerIdentity"}
)
"""Their answers are cached for a day; the plan shows their age."""

LOOKING = "DescribeInstances"
"""The first call is counted; later ones are polls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """Calls by action, in the order of their first appearance.

    Attributes:
        acts: calls that change something.
        observations: calls that are made at most once a day.
        release: calls that remove the run's resources other than machines.
    """

    acts: Counter[str]
    observations: Counter[str]
    release: Counter[str]


@pytest.fixture
def laptop(box: Box, laptop: Laptop) -> Iterator[Laptop]:
    """A user's computer with an AWS account that a bootstrap has set up."""
    set_up(box)
    laptop.extra_env |= {**box.env, "KEDGE_PROVIDER": "aws", "KEDGE_SSH_FROM": "127.0.0.1/32"}
    shutil.copy(TRAIN, laptop.home / "train.py")
    laptop.write_job(JOB)
    yield laptop
    assert box.billing() == [], "something is left billing"


def count(box: Box, laptop: Laptop, run: str, begun: float) -> Counted:
    """Count the calls since the plan was confirmed: an intent is recorded before a plan's first action."""
    ledger = laptop.ledger()
    confirmed_at = min(at for intent in ledger.intents(run) if (at := intent.at.timestamp()) >= begun)
    ledger.close()
    seen = [one for one in box.calls() if one.at >= confirmed_at and one.service != "s3"]
    first_of_release = next((number for number, one in enumerate(seen) if is_release(one)), len(seen))
    actions = [one.action for one in seen[:first_of_release]]
    acts = Counter(action for action in actions if action not in OBSERVATIONS | {LOOKING})
    return Counted(
        acts=acts + Counter({LOOKING: 1 if LOOKING in actions else 0}),
        observations=Counter(action for action in actions if action in OBSERVATIONS),
        release=Counter(one.action for one in seen[first_of_release + 1 :]),
    )


def is_release(one: Seen) -> bool:
    """Return whether a call lists a run's machines by the run's tag; its resources are removed after the last one."""
    return one.action == LOOKING and one.params.get("Filter.1.Name") == "tag:kedge-run"


def counted(box: Box, laptop: Laptop, *words: str, run: str | None = None) -> tuple[str, Counted]:
    """Run a command, and count its calls; returns the run's id too."""
    box.reset_calls()
    begun = time.time()
    said = json.loads(laptop.kedge(*words, "--yes", "--json"))
    name = run or str(said["run"])
    return name, count(box, laptop, name, begun)


def take_away(box: Box) -> None:
    """Reclaim the run's machine without a notice, and wait until it is gone."""
    (machine,) = box.machines()
    box.reclaim(machine["instance_id"], notice_seconds=None)
    wait_until(lambda: states(box) == ["terminated"])


def states(box: Box) -> list[str]:
    """Return the states of all instances."""
    return [str(one["State"]["Name"]) for one in instances(box)]


def test_a_launch_and_its_end_take_few_calls(box: Box, laptop: Laptop) -> None:
    """A role and a firewall are created once for each run; one request creates the rest of a machine."""
    run, first = counted(box, laptop, "launch", "--detach")
    take_away(box)
    _, another = counted(box, laptop, "resume", run, "--detach", run=run)
    _, end = counted(box, laptop, "teardown", run, "--no-fetch", run=run)
    assert states(box) == ["terminated", "terminated"], "kedge said 'gone' before AWS confirmed it"

    launching = Counter(["RunInstances", "CreateSchedule", LOOKING])
    role = Counter(["CreateRole", "PutRolePolicy", "CreateInstanceProfile", "AddRoleToInstanceProfile"])
    assert first.acts == launching + role + Counter(["CreateSecurityGroup", "AuthorizeSecurityGroupIngress"])
    assert another.acts == launching
    assert end.acts == Counter([LOOKING, "TerminateInstances", "DeleteSchedule"])
    assert first.observations.total() <= 2
    assert (another.observations, end.observations) == (Counter(), Counter())
    assert (first.release, another.release) == (Counter(), Counter())
    leaving = ["DeleteSecurityGroup", "RemoveRoleFromInstanceProfile", "DeleteInstanceProfile", "DeleteRolePolicy"]
    # The first machine has ended by itself: its schedule still exists.
    assert end.release == Counter(["DeleteSchedule", *leaving, "DeleteRole"])
    assert figures() == [acts.total() for acts in (first.acts, another.acts, end.acts, end.release)]


def figures() -> list[int]:
    """Read the figures in the documentation: first machine, another machine, teardown, release."""
    rows = (line.split("|") for line in TABLE.read_text().splitlines() if line.startswith("| "))
    return [int(row[2]) for row in rows if row[2].strip().isdigit()]
