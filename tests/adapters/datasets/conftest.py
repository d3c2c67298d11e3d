from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from orchestrator.agent.imds import ENDPOINT_VARIABLE
from tests.adapters.datasets.lab import Lab
from tests.agent.aws import Aws, running_aws
from tests.cloudbox.strict_moto import serving_moto


@pytest.fixture(scope="session")
def moto() -> Iterator[str]:
    with serving_moto() as url:
        yield url


@pytest.fixture
def aws(moto: str) -> Iterator[Aws]:
    """A bucket of the test's own."""
    with running_aws(moto, f"kedge-{uuid4().hex}") as running:
        yield running


@pytest.fixture
def lab(aws: Aws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """A laptop with a folder of data, a bucket, and a machine with the agent's half."""
    monkeypatch.setenv(ENDPOINT_VARIABLE, aws.imds.url)
    return Lab(aws, tmp_path)
