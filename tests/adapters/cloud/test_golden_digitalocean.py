"""Requests to DigitalOcean and files on disk compared with golden files, which other versions of kedge rely on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.adapters.providers import Context, open_backing
from tests.adapters.cloud.do_life import DoLife, live
from tests.adapters.cloud.goldens import GOLDEN, FixedClock, Golden
from tests.adapters.digitalocean.world import DoWorld, restock_mi300x
from tests.cloudbox.digitalocean.box import DigitalOceanBox

STORES = json.loads((GOLDEN / "do" / "store_urls.json").read_text())


@pytest.fixture(scope="module", params=["do", "amd"])
def life(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, DoLife]]:
    """A run's life from its first machine to its release, at an account that knows the laptop's key."""
    cloud: str = request.param
    api: DigitalOceanBox = request.getfixturevalue(f"{cloud}_api_process")
    api.reset()
    if cloud == "do":
        restock_mi300x(api)
    world = DoWorld(api=api, folder=tmp_path_factory.mktemp("life"), name=cloud, clock=FixedClock(api))
    world.enter_key()
    api.calls.reset()
    yield cloud, live(world)
    broken = api.broken
    api.reset()
    assert not broken, "a call or an answer broke DigitalOcean's API description"


def test_every_request_that_changes_something_is_the_one_of_the_golden_file(
    life: tuple[str, DoLife], golden: Golden
) -> None:
    """Names, tags, the firewall, and all of the request for a droplet except its user-data."""
    golden.compare(f"{life[0]}/requests.json", life[1].requests)


def test_the_user_data_of_a_droplet_is_that_of_the_golden_file(life: tuple[str, DoLife], golden: Golden) -> None:
    """Every byte."""
    golden.compare_text(f"{life[0]}/user_data.yaml", life[1].user_data)


def test_a_run_s_record_is_that_of_the_golden_file(life: tuple[str, DoLife], golden: Golden) -> None:
    """Another version of kedge on this computer reads it."""
    golden.compare_text(f"{life[0]}/run.json", f"{life[1].run_record}\n")


def test_the_state_folder_s_files_have_the_names_of_the_golden_file(life: tuple[str, DoLife], golden: Golden) -> None:
    """An older kedge that works on the same machine waits for the same lock."""
    golden.compare(f"{life[0]}/files.json", life[1].files)


@pytest.mark.parametrize("cloud", ["do", "amd"])
@pytest.mark.parametrize("name", STORES)
def test_the_store_s_url_is_that_of_the_golden_file(cloud: str, name: str, tmp_path: Path) -> None:
    """Running machines have it; both clouds use the same bucket."""
    keys = {"SPACES_ACCESS_KEY_ID": "DO00KEY", "SPACES_SECRET_ACCESS_KEY": "very-secret"}
    tokens = {"DIGITALOCEAN_ACCESS_TOKEN": "token", "AMD_DEVCLOUD_TOKEN": "token"}
    context = Context(
        state_dir=tmp_path,
        runtime_dir=tmp_path,
        clock=FixedClock(),
        key_file=tmp_path / "key",
        environ={**keys, **tokens, **STORES[name]["environ"]},
    )
    store = open_backing(cloud, context).store
    assert (store.url if store else None) == STORES[name]["url"]
