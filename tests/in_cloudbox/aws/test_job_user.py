"""A hostile job on its own machine: it runs as another user than kedge, and can't change root's files."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.adapters.aws.world import set_up
from tests.cloudbox.aws.box import Box
from tests.support.laptop import Laptop
from tests.support.waiting import wait_until

ATTACK = Path(__file__).with_name("attack.sh")
JOB = """
    name: hostile
    workdir: .
    start: boot
    run: |
      id -un
      sh attack.sh
      echo made >result; cp result "$KEDGE_OUTPUT_DIR"
    deadline: 10m
    budget: 5
    envs: {KEDGE_TORCH_WHEEL: none}
    resources: {accelerators: T4, use_spot: true, region: us-east-1}
    supervisor: {kind: systemd, restarts: 0, grace: 5s}
"""


@pytest.fixture
def laptop(box: Box, laptop: Laptop) -> Iterator[Laptop]:
    """A user's computer with an AWS account, and a job that attacks the machine that it runs on."""
    set_up(box)
    laptop.extra_env |= {**box.env, "KEDGE_PROVIDER": "aws", "KEDGE_SSH_FROM": "127.0.0.1/32"}
    shutil.copy(ATTACK, laptop.home)
    laptop.write_job(JOB)
    yield laptop
    assert box.billing() == [], "something is left billing"


def succeeded(log: str) -> list[str]:
    """Return the attacks that worked."""
    assert "ATTACKS over" in log, log
    return re.findall(r"ATTACK (.*): done", log)


def test_a_job_cannot_take_its_machine_over(laptop: Laptop) -> None:
    """It gets no root rights, and can't change the deadline, the agent, or what root does at the next boot."""
    run = laptop.json("launch", "--yes", "--detach", "--keep")["run"]
    wait_until(lambda: "ATTACKS over" in laptop.kedge("logs", run), seconds=90)
    log = laptop.kedge("logs", run)
    assert succeeded(log) == []
    for where in (("exec",), ("exec", "--admin")):
        said = laptop.kedge(*where, run, "--", "id", "-un").strip()
        assert said == ("kedge" if "--admin" in where else "job")
    entered = laptop.kedge("exec", run, "--", "sh", "-c", "ls /tmp/entered-by-*").split()
    assert entered == ["/tmp/entered-by-job"], "the administrator's shell ignores what the job has left in its folder"
    armed = laptop.kedge("exec", run, "--", "systemctl", "is-active", "kedge-deadline.timer", "kedge-watch.service")
    assert armed.split() == ["active", "active"]
    assert "done" not in laptop.kedge("exec", run, "--", "sh", "attack.sh"), "a shell of `kedge exec` can't attack"
    laptop.kedge("teardown", "--yes")
    (made,) = laptop.home.glob("kedge-results/hostile-*/output/result")
    assert made.read_text() == "made\n"
