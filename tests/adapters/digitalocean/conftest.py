"""A DigitalOcean account for each test: the box's API, without machines."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.adapters.digitalocean.world import DoWorld
from tests.cloudbox.digitalocean.box import DigitalOceanBox


@pytest.fixture
def do(do_api: DigitalOceanBox, tmp_path: Path) -> DoWorld:
    """A laptop, and an account in which nothing was ever made."""
    return DoWorld(api=do_api, folder=tmp_path)
