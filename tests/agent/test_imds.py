"""The metadata service: IMDSv2, a role whose credentials change, and the two ways in which a machine is warned."""

from __future__ import annotations

import time

import pytest

from orchestrator.agent.s3.imds import ENDPOINT_VARIABLE, Metadata, Role
from orchestrator.agent.watch.spot import instance_action, rebalance
from tests.agent.aws import REGION, Aws


def test_nothing_is_asked_without_a_token_and_a_lost_one_is_renewed(aws: Aws) -> None:
    """The service answers 401 to what carries none."""
    metadata = Metadata(aws.imds.url)
    assert metadata.region() == REGION
    aws.imds.tokens.clear()
    assert metadata.region() == REGION
    assert len(aws.imds.tokens) == 1


def test_the_endpoint_is_taken_from_the_environment(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    """As every tool of AWS's does it."""
    monkeypatch.setenv(ENDPOINT_VARIABLE, f"{aws.imds.url}/")
    assert Metadata().region() == REGION


def test_credentials_are_kept_until_they_are_about_to_expire(aws: Aws) -> None:
    """New ones are there five minutes before; until then the same ones do."""
    role = Role(Metadata(aws.imds.url))
    assert role.credentials() == role.credentials()
    assert aws.imds.issued == 1
    aws.imds.lasts = 200
    role.forget()
    assert role.credentials() != role.credentials()


def test_old_credentials_do_while_there_are_no_new_ones(aws: Aws) -> None:
    """The service may fail for a moment, and they are valid until they expire."""
    aws.imds.lasts = 200
    role = Role(Metadata(aws.imds.url))
    kept = role.credentials()
    aws.imds.has_role = False
    assert role.credentials() == kept


def test_a_machine_without_a_role_says_so(aws: Aws) -> None:
    """A role takes a while to arrive."""
    aws.imds.has_role = False
    with pytest.raises(OSError, match="no role"):
        Role(Metadata(aws.imds.url)).credentials()


def test_a_notice_is_heard(aws: Aws) -> None:
    """None, then when the machine goes, in Unix seconds."""
    metadata = Metadata(aws.imds.url)
    assert instance_action(metadata) == 0
    assert aws.imds.warn() == instance_action(metadata)


@pytest.mark.parametrize("content", ["{}", "[]", "not JSON", '{"time": 3}', '{"time": "soon"}'])
def test_a_notice_that_cannot_be_read_is_a_notice(aws: Aws, content: str) -> None:
    """Two minutes are what is promised."""
    aws.imds.facts["spot/instance-action"] = content
    assert abs(instance_action(Metadata(aws.imds.url)) - time.time() - 120) < 5


def test_a_recommendation_is_heard(aws: Aws) -> None:
    """It is known by its time."""
    metadata = Metadata(aws.imds.url)
    assert rebalance(metadata) == ""
    aws.imds.recommend(0)
    assert rebalance(metadata) == "1970-01-01T00:00:00Z"


def test_a_service_that_is_not_there_is_told_soon() -> None:
    """Nothing hangs on it."""
    began = time.monotonic()
    with pytest.raises(OSError, match="refused"):
        Metadata("http://127.0.0.1:9").region()
    assert time.monotonic() - began < 3
