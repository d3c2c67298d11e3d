"""The real program and a machine that boots, for an operator with exactly the documented policy."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator

import pytest

from tests.cloudbox.aws.box import Box
from tests.cloudbox.aws.launches import instances
from tests.cloudbox.aws.leftovers import leftovers
from tests.cloudbox.aws.operators import make_operator, operator_policy
from tests.in_cloudbox.aws.runs import assert_counted, steps, unseen_until_the_next, wait_until_shipped
from tests.support.laptop import TRAIN, Laptop
from tests.support.waiting import wait_until

JOB = """
    name: toy
    workdir: .
    start: boot
    run: python3 train.py
    outputs: [results]
    checkpoints: ckpt
    envs: {STEPS: 100000, PAUSE: 0.2, SAVE_EVERY: 10, KEDGE_TORCH_WHEEL: none}
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
    """Launch with a volume, logs, new code, results, a reclaimed spot machine, resume, teardown, reap.

    `sync-code --restart` resumes from the checkpoint, on the new code; unchanged code isn't sent. `resume` finds that
    the machine was reclaimed, and resumes from the checkpoint on another.
    """
    laptop.write_job(JOB)
    run = laptop.json("launch", "--detach", "--yes")["run"]
    wait_until(lambda: "step " in laptop.kedge("logs", run), seconds=120)
    wait_until_shipped(box, run, bucket=bucket(box))
    write_code(laptop, "of {steps}", "of the {steps}")
    laptop.kedge("sync-code", run, "--restart")
    wait_until(lambda: " of the " in laptop.kedge("logs", run), seconds=120)
    sent = puts_of_code(box)
    assert "in place already" in laptop.kedge("sync-code", run)
    assert puts_of_code(box) == sent
    first_again = re.findall(r"step (\d+) of the", laptop.kedge("logs", run))[0]
    wait_until_shipped(box, run, after=int(first_again), bucket=bucket(box))
    laptop.kedge("fetch", run, "--to", "so-far")
    (machine,) = box.machines()
    box.reclaim(machine["instance_id"], notice_seconds=None)
    wait_until(lambda: instances(box)[0]["State"]["Name"] == "terminated", seconds=120, pause=0.3)
    write_code(laptop, "range(done + 1, steps + 1)", "range(done + 1, done + 21)")
    said = laptop.kedge("resume", run, "--yes")
    assert f"found: machine {run}-m1 is gone: aws took it away (Server.SpotInstanceTermination" in said
    assert [one["State"]["Name"] for one in instances(box)] == ["terminated", "terminated"]
    done = steps(laptop, run, "home")
    assert sorted(set(done)) == list(range(1, max(done) + 1))
    # The log belongs to the run: it includes the first machine's lines.
    log = (laptop.home / "home" / "run.log").read_text()
    assert (log.count("a fresh start"), log.count("going on from step")) == (1, 2)
    assert_counted(box, laptop, unseen=unseen_until_the_next)
    laptop.kedge("teardown", run, "--yes")
    laptop.kedge("reap", "--yes")
    assert [call for call in box.calls() if call.status in (401, 403)] == []


def bucket(box: Box) -> str:
    """Return the account's only bucket."""
    (found,) = box.client("s3").list_buckets()["Buckets"]
    return str(found["Name"])


def write_code(laptop: Laptop, old: str, new: str) -> None:
    """Change the user's script."""
    script = laptop.home / "train.py"
    assert old in script.read_text()
    script.write_text(script.read_text().replace(old, new))


def puts_of_code(box: Box) -> int:
    """Count how often code was put into the bucket."""
    return sum(seen.action == "PutObject" and "code/" in str(seen.params) for seen in box.calls("s3"))
