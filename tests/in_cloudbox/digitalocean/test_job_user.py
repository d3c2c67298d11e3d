"""A hostile job on its own droplet: only root can read the token that deletes every droplet of the team."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from orchestrator.adapters.providers.digitalocean.self_deletion import SCOPES
from tests.cloudbox.digitalocean.box import DigitalOceanBox
from tests.in_cloudbox.aws.test_job_user import ATTACK, succeeded
from tests.support.laptop import Laptop
from tests.support.waiting import wait_until

JOB = """
    name: hostile
    workdir: .
    run: sh attack.sh; sleep 600
    deadline: 10m
    budget: 5
    resources: {infra: do, instance_type: s-2vcpu-4gb}
    supervisor: {kind: tmux, restarts: 0, grace: 5s}
"""


@pytest.fixture
def laptop(do_box: DigitalOceanBox, laptop: Laptop) -> Iterator[Laptop]:
    """A user's computer with a DigitalOcean account, a token for its droplets, and a job that tries to steal it."""
    token = do_box.make_token(*SCOPES)
    laptop.extra_env |= {**do_box.environ, "KEDGE_PROVIDER": "do", "KEDGE_SSH_FROM": "127.0.0.1/32"}
    laptop.extra_env["KEDGE_DIGITALOCEAN_DELETE_TOKEN"] = token
    shutil.copy(ATTACK, laptop.home)
    laptop.write_job(JOB)
    yield laptop
    assert do_box.meter.billing() == [], "something is left billing"


def test_a_job_cannot_read_the_token_of_its_droplet(laptop: Laptop) -> None:
    """Nor can it become root, or change the agent or the deadline; `--admin` shows that the token is there."""
    run = laptop.json("launch", "--yes", "--detach", "--keep")["run"]
    wait_until(lambda: "ATTACKS over" in laptop.kedge("logs", run), seconds=90)
    assert succeeded(laptop.kedge("logs", run)) == []
    token = ("sudo", "-n", "grep", "-c", "Bearer", "/var/lib/kedge/api.curl")
    assert laptop.kedge("exec", "--admin", run, "--", *token).strip() == "1"
    laptop.kedge("teardown", "--yes")
