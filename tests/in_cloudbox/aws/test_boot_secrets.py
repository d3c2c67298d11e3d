"""`start: boot` with secrets on AWS, as plans and refusals say it; instances exist only in the API."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.adapters.aws.world import set_up
from tests.cloudbox.aws.box import Box
from tests.cloudbox.aws.leftovers import leftovers
from tests.support.laptop import Laptop

JOB = """
    name: toy
    workdir: .
    start: boot
    run: python3 train.py
    secrets: [HF_TOKEN]
    envs: {WANDB_API_KEY: null}
    deadline: 10m
    budget: 5
    resources: {accelerators: T4, region: us-east-1}
"""


@pytest.fixture
def laptop(api: Box, laptop: Laptop) -> Iterator[Laptop]:
    """A user's computer with two variables that the job takes."""
    laptop.extra_env |= {**api.env, "KEDGE_PROVIDER": "aws", "KEDGE_SSH_FROM": "127.0.0.1/32"}
    laptop.extra_env |= {"HF_TOKEN": "hf_1", "WANDB_API_KEY": "wandb_1"}
    laptop.write_job(JOB)
    yield laptop
    assert api.billing() == []
    assert leftovers(api) in ([], ["role kedge-runs", "profile kedge-runs"])


def test_a_plan_says_where_secrets_are_stored_and_for_how_long(api: Box, laptop: Laptop) -> None:
    """By name, before anything is created; without the variable, there is no plan."""
    set_up(api)
    said = " ".join(laptop.kedge("plan").split())
    assert "store secrets that only the run's machines can read: HF_TOKEN, WANDB_API_KEY in AWS's" in said
    assert "deleted with the run" in said
    assert "hf_1" not in said
    del laptop.extra_env["HF_TOKEN"]
    laptop.kedge("launch", "--yes", code=2)
    assert "kedge.yaml:6: `secrets.HF_TOKEN`" in laptop.errors
    assert [call for call in api.calls() if call.action in ("PutParameter", "RunInstances", "CreateRole")] == []


def test_secrets_are_refused_where_all_runs_have_one_role(api: Box, laptop: Laptop) -> None:
    """The reason, and what to do instead, come with the plan."""
    set_up(api, RunRole="true")
    laptop.kedge("launch", "--yes", code=2)
    said = " ".join(laptop.errors.split())
    assert "secrets can't be stored for a machine that starts by itself" in said
    assert "all runs of this account have one role" in said
    assert "write `start: ssh`" in said
    assert [call for call in api.calls() if call.action in ("PutParameter", "RunInstances")] == []


def test_a_launch_that_can_t_store_its_secrets_leaves_nothing(api: Box, laptop: Laptop) -> None:
    """One is stored, the other isn't: the run is closed, and the first one deleted."""
    set_up(api)
    api.delay_next("PutParameter", 0)
    api.fail_next("PutParameter", "ParameterLimitExceeded")
    said = laptop.kedge("launch", "--yes", code=1)
    assert "the secret WANDB_API_KEY can't be stored" in laptop.errors
    assert "nothing was rented" in said
    assert [call for call in api.calls() if call.action == "RunInstances"] == []
