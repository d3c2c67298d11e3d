"""A user who asks the box what is for sale."""

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
    """The time of a test."""
    return SetClock()


@pytest.fixture(scope="session")
def kept_session(api_process: Box) -> AwsSession:
    """One session for all tests of a worker: making clients is what takes long."""
    with pytest.MonkeyPatch.context() as shell:
        work_as_user(api_process, shell)
        return AwsSession()


@pytest.fixture
def session(kept_session: AwsSession, api_process: Box, monkeypatch: pytest.MonkeyPatch) -> AwsSession:
    """A user of the box's account; clients read the shell when they are made, which is at their first use."""
    work_as_user(api_process, monkeypatch)
    return kept_session


def work_as_user(api: Box, shell: pytest.MonkeyPatch) -> None:
    for name, value in api.env.items():
        shell.setenv(name, value)


@pytest.fixture
def ask(api: Box, session: AwsSession, clock: SetClock, tmp_path: Path) -> Ask:
    """List offers for some wishes."""

    def list_for(volume_zone: str | None = None, user: AwsSession = session, **wishes: Any) -> Listing:
        return list_offers(Resources(**wishes), user, clock, tmp_path / "aws", volume_zone=volume_zone)

    return list_for
