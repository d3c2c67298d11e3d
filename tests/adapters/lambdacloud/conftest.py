"""Fixture: a laptop with a Lambda account, on a clock that skips waiting times."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.adapters.lambdacloud.world import LambdaWorld
from tests.cloudbox.lambdacloud.account import Settings
from tests.cloudbox.lambdacloud.box import LambdaBox


@pytest.fixture
def lam(lambda_api: LambdaBox, tmp_path: Path) -> LambdaWorld:
    """As slow and as strict as Lambda is: its own limits and lags."""
    lambda_api.cloud.account.settings = Settings()
    return LambdaWorld(lam=lambda_api, folder=tmp_path)
