"""Fixtures: a DigitalOcean account for each test, in the box's API, which starts no machines."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.adapters.digitalocean.world import DoWorld, restock_mi300x
from tests.cloudbox.digitalocean.account.account import Settings
from tests.cloudbox.digitalocean.box import DigitalOceanBox


@pytest.fixture
def new_do(do_api: DigitalOceanBox, tmp_path: Path) -> DoWorld:
    """A laptop and an account without any resources. Sleeping takes no time, so delays can have their real length."""
    do_api.settings.key_seconds = Settings().key_seconds
    restock_mi300x(do_api)
    return DoWorld(api=do_api, folder=tmp_path)


@pytest.fixture
def do(new_do: DoWorld) -> DoWorld:
    """A laptop and an account that knows its key from an earlier run."""
    new_do.enter_key()
    new_do.api.calls.reset()
    return new_do


@pytest.fixture
def amd(amd_api: DigitalOceanBox, tmp_path: Path) -> DoWorld:
    """A laptop and an account at the AMD Developer Cloud that knows its key."""
    world = DoWorld(api=amd_api, folder=tmp_path, name="amd")
    world.enter_key()
    amd_api.calls.reset()
    return world
