"""`kedge reap` on AWS through the real program: after a launch that was killed, nothing of its run is left."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.adapters.aws.world import set_up
from tests.chaos.cloud_kills import unsettled
from tests.cloudbox.aws.box import Box
from tests.cloudbox.aws.leftovers import leftovers, secrets_of
from tests.support.laptop import Laptop
from tests.support.waiting import wait_until

JOB = """
    name: toy
    workdir: .
    run: python3 train.py
    outputs: [results]
    deadline: 10m
    budget: 5
    resources: {accelerators: T4, region: us-east-1}
    volumes:
      data/scratch: {name: scratch, size: 1, at_end: delete}
"""


@pytest.fixture
def laptop(api: Box, laptop: Laptop) -> Iterator[Laptop]:
    """A user's computer with an AWS account whose instances exist only in the API."""
    set_up(api)
    laptop.extra_env |= {**api.env, "KEDGE_PROVIDER": "aws", "KEDGE_SSH_FROM": "127.0.0.1/32"}
    laptop.write_job(JOB)
    yield laptop
    assert api.billing() == [], "something is left billing"


@pytest.mark.parametrize("point", [("after", "2"), ("before", "3"), ("after", "4")])
def test_one_reap_cleans_up_after_a_killed_launch(api: Box, laptop: Laptop, point: tuple[str, str]) -> None:
    """Killed before the request, between AWS's answer and the ledger, and with the machine in the ledger."""
    assert laptop.drive("crashing_launch.py", *point).returncode == -9
    done = laptop.drive("reaping_later.py", "0", "aws")
    assert done.returncode == 0, done.stdout + done.stderr
    assert leftovers(api) == []
    assert unsettled(laptop) == []


def test_one_reap_deletes_the_secrets_of_killed_launches(api: Box, laptop: Laptop) -> None:
    """Killed before they were stored, after that, before the creation, and between AWS's answer and the ledger.

    The ledger's writes: open_run, intent and outcome of the code, of the secrets, intent of the creation, the machine.
    """
    laptop.write_job(JOB + "    start: boot\n    secrets: [HF_TOKEN]\n    envs: {WANDB_API_KEY: null}\n")
    laptop.extra_env |= {"HF_TOKEN": "hf_only-the-machine", "WANDB_API_KEY": "wandb_only-the-machine"}
    for point in (("after", "4"), ("before", "5"), ("after", "6"), ("before", "7")):
        assert laptop.drive("crashing_launch.py", *point).returncode == -9
    wait_until(lambda: len(secrets_of(api)) == 6)
    assert {name.rpartition("/")[2] for name in secrets_of(api)} == {"HF_TOKEN", "WANDB_API_KEY"}
    texts = [path.read_bytes() for path in laptop.state.rglob("*") if path.is_file()]
    assert not [text for text in texts if b"only-the-machine" in text]
    del laptop.extra_env["HF_TOKEN"]
    api.reset_calls()
    laptop.kedge("resume", secrets_of(api)[0].split("/")[3], "--yes", code=2)
    assert "the variable HF_TOKEN is not set" in laptop.errors
    assert [call for call in api.calls() if call.action in ("PutParameter", "RunInstances")] == []
    done = laptop.drive("reaping_later.py", "3600", "aws")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "secret /kedge/runs/toy-" in done.stdout
    assert leftovers(api) == []
    assert unsettled(laptop) == []


def test_a_lost_laptop_s_machine_is_ended_after_its_deadline(api: Box, laptop: Laptop) -> None:
    """Another computer finds it by its tags, in a region that it doesn't know, and ends all the run's resources."""
    laptop.write_job(JOB.replace("us-east-1", "eu-west-1"))
    assert laptop.drive("crashing_launch.py", "after", "4").returncode == -9
    laptop.state = laptop.state.with_name("state-of-another-computer")
    assert "Nothing bills" in laptop.kedge("reap", "--all", "--yes", "--provider", "aws")
    assert [bill.kind for bill in api.billing()].count("instance") == 1
    done = laptop.drive("reaping_later.py", "3600", "--all", "aws")
    assert done.returncode == 0, done.stdout + done.stderr
    assert leftovers(api, "eu-west-1") == []


def test_denied_lists_are_reported_and_are_no_all_clear_if_they_bill(api: Box, laptop: Laptop) -> None:
    """A denied list of schedules, which cost nothing, is reported; a denied list of machines is no all-clear."""
    laptop.kedge("reap", "--yes", "--provider", "aws")
    api.fail_next("ListSchedules", "AccessDeniedException", status=403, times=None)
    said = laptop.kedge("reap", "--yes", "--provider", "aws")
    assert "Nothing bills except live runs at the providers that were queried" in said
    assert "aws could be queried only in part: the schedules in us-east-1 can't be listed" in laptop.errors
    api.fail_next("DescribeInstances", "UnauthorizedOperation", status=403, times=None, region="us-east-1")
    laptop.kedge("reap", "--yes", "--provider", "aws", code=5)
    assert "what could not be queried at aws (the machines in us-east-1 can't be listed" in laptop.errors
