"""The metadata service: IMDSv2, a role with rotating credentials, and the two kinds of interruption warnings."""

from __future__ import annotations

import time

import pytest

from orchestrator.agent.s3.imds import ENDPOINT_VARIABLE, Metadata, Role
from orchestrator.agent.watch.spot import instance_action, rebalance
from tests.agent.aws import REGION, Aws


def test_every_request_has_a_token_and_a_lost_token_is_renewed(aws: Aws) -> None:
    """The service answers 401 to requests without a token."""
    metadata = Metadata(aws.imds.url)
    assert metadata.region() == REGION
    aws.imds.tokens.clear()
    assert metadata.region() == REGION
    assert len(aws.imds.tokens) == 1


def test_the_endpoint_is_taken_from_the_environment(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in all of AWS's tools."""
    monkeypatch.setenv(ENDPOINT_VARIABLE, f"{aws.imds.url}/")
    assert Metadata().region() == REGION


def test_credentials_are_kept_until_they_are_about_to_expire(aws: Aws) -> None:
    """New ones are fetched five minutes before that."""
    role = Role(Metadata(aws.imds.url))
    assert role.credentials() == role.credentials()
    assert aws.imds.issued == 1
    aws.imds.lasts = 200
    role.forget()
    assert role.credentials() != role.credentials()


def test_old_credentials_are_used_until_there_are_new_ones(aws: Aws) -> None:
    """The service may fail for a moment, and the old ones are valid until they expire."""
    aws.imds.lasts = 200
    role = Role(Metadata(aws.imds.url))
    kept = role.credentials()
    aws.imds.has_role = False
    assert role.credentials() == kept


def test_a_missing_role_is_reported(aws: Aws) -> None:
    """A role takes a while to arrive."""
    aws.imds.has_role = False
    with pytest.raises(OSError, match="no role"):
        Role(Metadata(aws.imds.url)).credentials()


def test_an_interruption_notice_is_read(aws: Aws) -> None:
    """None at first, then the time of the interruption in Unix seconds."""
    metadata = Metadata(aws.imds.url)
    assert instance_action(metadata) == 0
    assert aws.imds.warn() == instance_action(metadata)


@pytest.mark.parametrize("content", ["{}", "[]", "not JSON", '{"time": 3}', '{"time": "soon"}'])
def test_an_unreadable_notice_counts_as_a_notice(aws: Aws, content: str) -> None:
    """It counts as the promised two minutes."""
    aws.imds.facts["spot/instance-action"] = content
    assert abs(instance_action(Metadata(aws.imds.url)) - time.time() - 120) < 5


def test_a_rebalance_recommendation_is_read(aws: Aws) -> None:
    """Its time identifies it."""
    metadata = Metadata(aws.imds.url)
    assert rebalance(metadata) == ""
    aws.imds.recommend(0)
    assert rebalance(metadata) == "1970-01-01T00:00:00Z"


def test_a_missing_metadata_service_is_reported_soon() -> None:
    """No request hangs."""
    began = time.monotonic()
    with pytest.raises(OSError, match="refused"):
        Metadata("http://127.0.0.1:9").region()
    assert time.monotonic() - began < 3
