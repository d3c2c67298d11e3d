"""An AWS account that enforces policies."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.adapters.aws.world import set_up
from tests.cloudbox.aws.box import Box


@pytest.fixture
def enforced(api: Box, monkeypatch: pytest.MonkeyPatch) -> Iterator[Box]:
    """An account that kedge is set up in, and whose user has exactly the documented policy."""
    set_up(api)
    yield api
    api.enforce_iam(False)
