"""No droplet is created with user-data that cloud-init could not read."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.core.errors import KedgeError
from tests.adapters.digitalocean.world import DoWorld, volume


@pytest.mark.parametrize("target", ["a\x1bb", "a\x85b", "a\u2028b", "a\rb"])
def test_user_data_that_cloud_init_cannot_read_makes_no_droplet(do: DoWorld, target: str) -> None:
    """One bad character voids the whole cloud-config: no deadline, no user, and a bill. This check is the last one."""
    with pytest.raises(KedgeError, match="user-data"):
        do.provider().create(do.order(volumes=(replace(volume(), target=target),)))
    assert do.api.droplets() == []
    assert do.api.meter.billing() == []
    assert do.posts() == 0
