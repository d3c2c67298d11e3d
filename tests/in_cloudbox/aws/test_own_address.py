"""The plan knows who may connect to a rented machine: this computer's address, or the network in --ssh-from."""

from __future__ import annotations

import pytest

from tests.adapters.aws.world import set_up
from tests.cloudbox.aws.box import Box
from tests.cloudbox.digitalocean.box import DigitalOceanBox
from tests.support.laptop import Laptop

JOB = """
    name: toy
    workdir: .
    run: python3 train.py
    deadline: 10m
"""
# The query for the address uses TLS, through a proxy that doesn't exist.
NO_WAY_OUT = {"https_proxy": "http://127.0.0.1:9", "no_proxy": "127.0.0.1,localhost"}


@pytest.fixture(params=["aws", "do"])
def cloud(request: pytest.FixtureRequest, laptop: Laptop) -> str:
    """A laptop with an account, which can't find out its own address."""
    laptop.extra_env |= NO_WAY_OUT | {"KEDGE_PROVIDER": request.param}
    laptop.write_job(JOB)
    if request.param == "aws":
        api: Box = request.getfixturevalue("api")
        set_up(api)
        laptop.extra_env |= api.env
    else:
        do: DigitalOceanBox = request.getfixturevalue("do_api")
        laptop.extra_env |= do.environ
    return str(request.param)


@pytest.mark.parametrize("words", [("plan",), ("launch", "--yes"), ("launch", "--dry-run"), ("selftest", "--yes")])
def test_an_address_that_can_not_be_found_out_stops_the_plan(
    laptop: Laptop, cloud: str, words: tuple[str, ...]
) -> None:
    """Before the user is asked anything, or anything is created: no run is in the ledger."""
    laptop.kedge(*words, code=2)
    assert "this computer's public address can't be determined" in laptop.errors
    assert "--ssh-from 203.0.113.7/32" in laptop.errors
    assert laptop.json("status", "--all", "--ledger") == [], cloud


def test_a_plan_shows_who_may_connect(laptop: Laptop, cloud: str) -> None:
    """The value of --ssh-from is in the plan, for people and for scripts; such a plan needs no query."""
    said = laptop.kedge("plan", "--ssh-from", "198.51.100.0/24")
    assert "note: SSH to the machine is open to 198.51.100.0/24 (--ssh-from), and to nobody else" in said
    actions = laptop.json("plan", "--ssh-from", "198.51.100.0/24")["actions"]
    assert [each["ssh_from"] for each in actions if each["kind"] == "CreateMachine"] == ["198.51.100.0/24"], cloud


def test_a_local_machine_needs_no_address(laptop: Laptop) -> None:
    """Only this computer can connect to a machine on this computer."""
    laptop.extra_env |= NO_WAY_OUT
    laptop.write_job(JOB)
    assert "SSH to the machine" not in laptop.kedge("plan")
