"""A fixture: a laptop, a bucket and a machine for the tests of data sets."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.agent.s3.imds import ENDPOINT_VARIABLE
from tests.adapters.datasets.lab import Lab
from tests.agent.aws import Aws


@pytest.fixture
def lab(aws: Aws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """A laptop with a folder of data, a bucket, and a machine with the agent."""
    monkeypatch.setenv(ENDPOINT_VARIABLE, aws.imds.url)
    return Lab(aws, tmp_path)
