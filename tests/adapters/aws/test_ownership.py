"""Two accounts on one laptop: a machine is not taken for gone because the other account lacks it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from orchestrator.adapters.cloud.provider import CloudProvider
from orchestrator.core.errors import BadRequestError
from tests.adapters.aws.world import HOME, RUN, AwsWorld

M1 = f"{RUN}-m1"
OTHER = "111111111111"


@pytest.fixture
def other_keys(aws: AwsWorld) -> dict[str, str]:
    """Credentials of another account."""
    role = f"arn:aws:iam::{OTHER}:role/developer"
    keys = aws.api.client("sts").assume_role(RoleArn=role, RoleSessionName="other")["Credentials"]
    return {
        "AWS_ACCESS_KEY_ID": keys["AccessKeyId"],
        "AWS_SECRET_ACCESS_KEY": keys["SecretAccessKey"],
        "AWS_SESSION_TOKEN": keys["SessionToken"],
    }


ASKS: tuple[Callable[[CloudProvider, AwsWorld], object], ...] = (
    lambda provider, _: provider.describe(M1),
    lambda provider, _: provider.destroy(M1),
    lambda provider, _: provider.guard(M1),
    lambda provider, _: provider.reopen(M1, HOME),
    lambda provider, _: provider.release(RUN),
    lambda provider, world: provider.create(world.order(1)),
    lambda provider, world: provider.create(world.order(2)),
)


@pytest.mark.parametrize("ask", ASKS)
def test_a_machine_of_another_account_is_refused_and_not_forgotten(
    aws: AwsWorld,
    other_keys: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    ask: Callable[[CloudProvider, AwsWorld], object],
) -> None:
    """The error names both accounts. With its own account again, the machine is found with its host key."""
    made = aws.provider().create(aws.order())
    with monkeypatch.context() as elsewhere:
        for name, value in other_keys.items():
            elsewhere.setenv(name, value)
        with pytest.raises(BadRequestError, match=OTHER) as refusal:
            ask(aws.provider(), aws)
        assert "AWS_PROFILE" in refusal.value.fix
    found = aws.provider().describe(M1)
    assert found is not None
    assert found.address == made.address
    assert len(aws.instances()) == 1


def test_the_account_of_a_key_is_queried_once(aws: AwsWorld) -> None:
    """A key never changes its account."""
    aws.provider().create(aws.order(1))
    aws.provider().create(aws.order(2))
    assert aws.actions()["GetCallerIdentity"] == 1


def test_the_record_of_a_machine_that_is_gone_stays_until_its_run_is_released(aws: AwsWorld) -> None:
    """An empty look-up is no reason to forget how to reach a machine."""
    aws.provider().create(aws.order())
    aws.provider().destroy(M1)
    assert aws.provider().describe(M1) is None
    records = aws.folder / "aws" / "machines"
    assert [path.stem for path in records.glob("*.json")] == [M1]
    aws.provider().release(RUN)
    assert list(records.glob("*.json")) == []
