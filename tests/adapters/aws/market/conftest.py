"""Fixtures to list AWS offers from the box: a clock, a session and `ask`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orchestrator.adapters.providers.aws.access.session import AwsSession
from orchestrator.adapters.providers.aws.market.offers import Listing, list_offers
from orchestrator.core.job import Resources
from tests.adapters.aws.market.asking import Ask, SetClock
from tests.cloudbox.aws.box import Box


@pytest.fixture
def clock() -> SetClock:
    """A clock that the test moves."""
    return SetClock()


@pytest.fixture(scope="session")
def kept_session(api_process: Box) -> AwsSession:
    """One session for all tests of a worker, because creating clients is slow."""
    with pytest.MonkeyPatch.context() as shell:
        work_as_user(api_process, shell)
        return AwsSession()


@pytest.fixture
def session(kept_session: AwsSession, api_process: Box, monkeypatch: pytest.MonkeyPatch) -> AwsSession:
    """A session of the box's user. Clients are created at their first use, and read the environment then."""
    work_as_user(api_process, monkeypatch)
    return kept_session


def work_as_user(api: Box, shell: pytest.MonkeyPatch) -> None:
    for name, value in api.env.items():
        shell.setenv(name, value)


@pytest.fixture
def ask(api: Box, session: AwsSession, clock: SetClock, tmp_path: Path) -> Ask:
    """List offers for some requirements."""

    def list_for(volume_zone: str | None = None, user: AwsSession = session, **requirements: Any) -> Listing:
        return list_offers(Resources(**requirements), user, clock, tmp_path / "aws", volume_zone=volume_zone)

    return list_for
