"""Fixtures: moto's AWS, emptied for each test, and a session of its user."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from orchestrator.adapters.providers.aws.access.session import AwsSession
from tests.adapters.aws.account_moto import environment, reset, serving


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """One AWS for all tests of this file."""
    with serving() as endpoint:
        yield endpoint


@pytest.fixture
def endpoint(server: str) -> Iterator[str]:
    """An AWS account without any resources."""
    reset(server)
    yield server
    reset(server)


@pytest.fixture
def session(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> AwsSession:
    """The user's session."""
    for name, value in environment(endpoint).items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    return AwsSession()
