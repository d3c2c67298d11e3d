"""The real program and a machine that boots, for an operator with exactly the documented policy."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from tests.cloudbox.aws.box import Box
from tests.cloudbox.aws.leftovers import leftovers
from tests.cloudbox.aws.operators import make_operator, operator_policy
from tests.support.laptop import TRAIN, Laptop
from tests.support.waiting import wait_until

JOB = """
    name: toy
    workdir: .
    start: boot
    run: python3 train.py
    outputs: [results]
    checkpoints: ckpt
    envs: {STEPS: 100000, PAUSE: 0.2, SAVE_EVERY: 5, KEDGE_TORCH_WHEEL: none}
    deadline: 10m
    budget: 5
    resources: {accelerators: T4, use_spot: true, region: us-east-1}
    volumes: {data/scans: {name: scans, size: 1, at_end: delete}}
    supervisor: {kind: systemd, restarts: 0, grace: 10s}
"""


@pytest.fixture
def laptop(box: Box, laptop: Laptop) -> Iterator[Laptop]:
    """An operator's computer; an administrator has set up the account, which checks permissions from now on."""
    laptop.extra_env |= {**box.env, "KEDGE_PROVIDER": "aws", "KEDGE_SSH_FROM": "127.0.0.1/32"}
    laptop.kedge("bootstrap", "--provider", "aws", "--yes")
    laptop.extra_env |= make_operator(box, operator_policy())
    shutil.copy(TRAIN, laptop.home / "train.py")
    box.reset_calls()
    box.enforce_iam()
    yield laptop
    box.enforce_iam(False)
    assert box.billing() == [], "something is left billing"
    assert leftovers(box) == []


def test_an_operator_needs_no_more_than_the_documented_policy(box: Box, laptop: Laptop) -> None:
    """Launch with a volume, logs, new code, results, a reclaimed spot machine, resume, teardown, reap."""
    laptop.write_job(JOB)
    run = laptop.json("launch", "--detach", "--yes")["run"]
    (first,) = box.machines()
    wait_until(lambda: "step " in laptop.kedge("logs", run), seconds=240)
    (laptop.home / "more.py").write_text("print(1)\n")
    laptop.kedge("sync-code", run)
    laptop.kedge("fetch", run, "--to", "home")
    box.reclaim(first["instance_id"], notice_seconds=None)
    laptop.kedge("resume", run, "--detach", "--yes")
    laptop.kedge("teardown", run, "--yes")
    laptop.kedge("reap", "--yes")
    assert [call for call in box.calls() if call.status in (401, 403)] == []
