"""A fixture: an AWS account for each test, in the box's API, which starts no machines."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.adapters.aws.world import AwsWorld, set_up
from tests.cloudbox.aws.box import Box


@pytest.fixture
def aws(api: Box, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AwsWorld:
    """A laptop, and a bootstrapped account."""
    for name, value in api.env.items():
        monkeypatch.setenv(name, value)
    set_up(api)
    return AwsWorld(api=api, folder=tmp_path)
