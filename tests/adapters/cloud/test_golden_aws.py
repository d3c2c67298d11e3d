"""Requests to AWS and files on disk compared with golden files, which other versions of kedge rely on."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import pytest

from orchestrator.adapters.providers import Context, open_backing
from orchestrator.core.ports import Provider
from tests.adapters.aws.world import AwsWorld, set_up
from tests.adapters.cloud.aws_life import GROUPS, SEEDED_RUN, AwsLife, default_subnet, live, order_while_sold_out
from tests.adapters.cloud.goldens import GOLDEN, START, FixedClock, Golden
from tests.cloudbox.aws.box import REGION, Box


@pytest.fixture(scope="module")
def world(api_process: Box, patch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AwsWorld]:
    """A laptop and a bootstrapped account."""
    api_process.reset()
    for name, value in api_process.env.items():
        patch.setenv(name, value)
    set_up(api_process)
    api_process.reset_calls()
    yield AwsWorld(api=api_process, folder=tmp_path_factory.mktemp("aws-life"), clock=FixedClock())
    api_process.reset()


@pytest.fixture(scope="module")
def provider(world: AwsWorld) -> Provider:
    """The laptop's provider, shared because creating the SDK's clients is slow."""
    return world.provider()


@pytest.fixture(scope="module")
def life(world: AwsWorld, provider: Provider) -> AwsLife:
    """A run's life from its first machine to its release."""
    return live(world, provider)


def token(parts: Sequence[str], ids: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return the idempotency token for these parts."""
    return hashlib.sha256("\0".join(ids.get(part, part) for part in parts).encode()).hexdigest()


def test_every_request_that_changes_something_is_the_one_of_the_golden_file(life: AwsLife, golden: Golden) -> None:
    """Names, tags, the schedule's expression, and all of RunInstances except its user-data."""
    golden.compare("aws/requests.json", life.requests)


def test_the_user_data_of_an_instance_is_that_of_the_golden_file(life: AwsLife, golden: Golden) -> None:
    """Every byte. It is compressed as before, so that a retry of the request is identical."""
    golden.compare_text("aws/user_data.yaml", life.user_data)
    assert life.is_compressed


def test_a_run_s_record_is_that_of_the_golden_file(life: AwsLife, golden: Golden) -> None:
    """Another version of kedge on this computer reads it."""
    golden.compare_text("aws/run.json", f"{life.run_record}\n")


def test_the_state_folder_s_files_have_the_names_of_the_golden_file(life: AwsLife, golden: Golden) -> None:
    """Cached facts about the account are found by these names."""
    golden.compare("aws/files.json", life.files)


def test_the_tokens_of_a_life_are_computed_from_the_parts_in_the_golden_file(life: AwsLife, golden: Golden) -> None:
    """AWS refuses a known token with other parameters, and creates two machines for two tokens."""
    said = golden.read("aws/tokens.json")["of a life"]
    assert life.tokens == {name: token(parts, life.ids) for name, parts in said.items()}


def test_the_token_of_an_order_is_that_of_the_golden_file(world: AwsWorld, provider: Provider, golden: Golden) -> None:
    """One for each offer. A creation that an earlier version left unfinished is continued, not repeated."""
    said = golden.read("aws/tokens.json")["of orders"]
    sent = order_while_sold_out(world, provider, {name: entry["order"] for name, entry in said.items()})
    assert sent == {name: entry["token"] for name, entry in said.items()}
    assert sent == {name: token(entry["parts"]) for name, entry in said.items()}


def test_the_token_of_an_order_includes_the_user_s_subnet(world: AwsWorld, provider: Provider) -> None:
    """AWS assigns the subnet's id, so no golden file can have the token."""
    subnet = default_subnet(world.api, f"{REGION}b")
    sent = order_while_sold_out(world, provider, {"mine": {"zone": f"{REGION}b", "subnets": [subnet]}})
    parts = [f"{SEEDED_RUN}-m1", REGION, f"{REGION}b", "m5.large", "on-demand", GROUPS[REGION], subnet]
    assert sent == {"mine": token(parts)}


STORES = json.loads((GOLDEN / "aws" / "store_urls.json").read_text())


@pytest.mark.parametrize("name", STORES)
def test_the_store_s_url_is_that_of_the_golden_file(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Running machines have it. Cached facts of an account are found where earlier versions put them."""
    said = STORES[name]
    environ = {"AWS_ACCESS_KEY_ID": "AKIAKEDGE", "AWS_SECRET_ACCESS_KEY": "none", **said["environ"]}
    for variable in [each for each in os.environ if each.startswith("AWS_")]:
        monkeypatch.delenv(variable)
    # A missing cache entry must not lead to a request.
    nobody = {f"AWS_ENDPOINT_URL_{service}": "http://127.0.0.1:9" for service in ("CLOUDFORMATION", "IAM", "STS")}
    for variable, value in {**environ, **nobody}.items():
        monkeypatch.setenv(variable, value)
    remembered = tmp_path / "aws" / said["remembered in"]
    remembered.parent.mkdir(parents=True)
    remembered.write_text(json.dumps({"name": "", "at": START.isoformat(), "value": said["account"]}))
    context = Context(
        state_dir=tmp_path, runtime_dir=tmp_path, clock=FixedClock(), key_file=tmp_path / "key", environ=environ
    )
    store = open_backing("aws", context).store
    assert store is not None
    assert store.url == said["url"]
