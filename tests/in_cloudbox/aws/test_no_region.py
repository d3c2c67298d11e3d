"""A user who has configured no region anywhere gives it with a flag."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cloudbox.aws.box import REGION, Box
from tests.cloudbox.aws.leftovers import leftovers
from tests.support.laptop import Laptop

pytestmark = pytest.mark.slow

JOB = """
    name: toy
    workdir: .
    run: python3 train.py
    outputs: [results]
    checkpoints: ckpt
    deadline: 10m
    supervisor: {kind: nohup, restarts: 0, grace: 10s}
"""
THERE = ("--provider", "aws", "--region", REGION)


@pytest.fixture
def nowhere(box: Box, laptop: Laptop) -> Iterator[Laptop]:
    """A laptop with credentials, and without a region: neither in its environment nor in its home."""
    named = ("AWS_REGION", "AWS_DEFAULT_REGION")
    home = laptop.home.parent / "unix-home"
    home.mkdir()
    laptop.extra_env |= {name: value for name, value in box.env.items() if name not in named}
    laptop.extra_env |= {"HOME": str(home), "KEDGE_SSH_FROM": "127.0.0.1/32"}
    yield laptop
    assert box.billing() == []
    assert leftovers(box) == []


def test_a_region_from_a_flag_is_enough_for_every_command(box: Box, nowhere: Laptop) -> None:
    """From an empty account to results, and back; commands without the flag find the region in the run."""
    nowhere.write_job(JOB)
    made = nowhere.json("bootstrap", *THERE, "--yes")
    assert (made["region"], bool(made["done"])) == (REGION, True)
    checks = {check["name"]: check["verdict"] for check in nowhere.json("doctor", *THERE, "--gpu", "t4")}
    assert set(checks.values()) <= {"ok", "warning"}, checks
    assert {offer["region"] for offer in nowhere.json("offers", *THERE, "--gpu", "t4")} == {REGION}
    assert nowhere.json("plan", *THERE)["actions"]
    # The plan is complete, and the command asks for a yes.
    nowhere.kedge("selftest", *THERE, code=2)
    assert "this needs your confirmation" in nowhere.errors
    assert nowhere.json("reap", "--provider", "aws", "--dry-run")["billing"] == []
    run = nowhere.json("launch", *THERE, "--keep", "--yes")["run"]
    (status,) = nowhere.json("status")
    assert (status["run"], status["state"], status["machines"][0]["region"]) == (run, "succeeded", REGION)
    assert "step 3 of 3" in nowhere.kedge("logs")
    assert nowhere.json("resume", "--dry-run")["run"] == run
    nowhere.kedge("teardown", "--yes")
    (results,) = (nowhere.home / "kedge-results").glob("toy-*")
    assert (results / "output" / "results" / "model.txt").read_text() == "trained for 3 steps"
    nowhere.kedge("bootstrap", *THERE, "--remove", "--delete-data", "--yes")
    assert box.client("s3").list_buckets()["Buckets"] == []
    assert box.client("iam").list_roles(PathPrefix="/kedge/")["Roles"] == []


def test_without_any_region_nothing_is_guessed(nowhere: Laptop) -> None:
    """A machine in the wrong region would cost money unnoticed: commands that rent must be told.

    An account that isn't set up is refused before.
    """
    nowhere.write_job(JOB)
    nowhere.kedge("launch", *THERE, "--yes", code=2)
    assert "`kedge bootstrap --provider aws" in nowhere.errors
    nowhere.json("bootstrap", *THERE, "--yes")
    nowhere.kedge("launch", "--provider", "aws", "--yes", code=2)
    assert "no AWS region is set" in nowhere.errors
    assert "--region" in nowhere.errors
    nowhere.kedge("bootstrap", "--provider", "aws", "--remove", "--yes", code=2)
    nowhere.kedge("bootstrap", *THERE, "--remove", "--delete-data", "--yes")
