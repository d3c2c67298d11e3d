"""A launch without AWS's current prices shows a plan, and rents nothing."""

from __future__ import annotations

from tests.adapters.aws.world import set_up
from tests.cloudbox.aws.box import Box
from tests.support.laptop import Laptop

WISH = ("--provider", "aws", "--gpu", "t4", "--ttl", "1h")


def test_nothing_is_launched_at_the_prices_of_a_snapshot(api: Box, laptop: Laptop) -> None:
    """The plan shows that its prices are a snapshot's; a launch is refused before anything is created or recorded."""
    set_up(api)
    laptop.extra_env |= {**api.env, "KEDGE_SSH_FROM": "127.0.0.1/32", "AWS_ENDPOINT_URL_PRICING": "http://127.0.0.1:1"}
    shown = laptop.kedge("launch", *WISH, "--dry-run")
    assert "a snapshot of" in shown
    assert "nothing is launched from it" in shown
    api.reset_calls()
    laptop.kedge("launch", *WISH, "--yes", code=1)
    assert "nothing is rented at the prices of a snapshot" in laptop.errors
    assert "why: prices: a snapshot of" in laptop.errors
    assert "fix: sign in" in laptop.errors
    assert [call.action for call in api.calls() if call.action.startswith(("Run", "Create", "Put"))] == []
    assert laptop.json("status", "--all") == []


def test_without_an_account_there_is_a_plan_and_advice_on_signing_in(laptop: Laptop) -> None:
    """A run that hasn't begun has no machines or results to query; a launch is refused with the fix."""
    laptop.extra_env |= {"HOME": str(laptop.home), "AWS_EC2_METADATA_DISABLED": "true", "AWS_REGION": "us-east-1"}
    laptop.write_job("name: toy\nworkdir: .\nstart: boot\nrun: python3 train.py\n")
    shown = " ".join(laptop.kedge("plan", *WISH).split())
    assert "g4dn.xlarge, t4:1 at $0.53/h" in shown
    assert "a snapshot of" in shown
    assert "Unable to locate credentials; run `aws configure`" in shown
    assert "zones are named by their ids, quotas and images are not checked" in shown
    laptop.kedge("launch", *WISH, "--yes", code=1)
    assert "nothing is rented at the prices of a snapshot" in laptop.errors
    assert "run `aws configure` or `aws sso login`" in laptop.errors
    assert laptop.json("status", "--all") == []
