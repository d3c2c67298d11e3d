"""A bucket of Spaces, simulated by moto's S3: how the laptop and the machine use it and its keys."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import pytest

from orchestrator.adapters.host.clock import SystemClock
from orchestrator.adapters.providers import Context, open_backing
from orchestrator.adapters.providers.digitalocean.site import SPACES
from orchestrator.adapters.store.s3 import connect_with_keys
from orchestrator.adapters.store.settings import KEDGE_STORE, S3Settings, read_settings
from orchestrator.adapters.sync.code.source import GitCodeSource
from orchestrator.adapters.sync.storage import Storage, open_storage
from orchestrator.agent.s3.client import parse_s3_url
from orchestrator.core.errors import BadRequestError
from orchestrator.core.job import DataMount
from tests.agent.aws import REGION, Aws
from tests.agent.box import RUN, Box, wait_for

KEYS = {"SPACES_ACCESS_KEY_ID": "DO00KEY", "SPACES_SECRET_ACCESS_KEY": "very-secret"}
NYC3 = {"KEDGE_SPACES_BUCKET": "mine", "KEDGE_SPACES_REGION": "nyc3", **KEYS}


@dataclass(frozen=True, kw_only=True)
class Spaces:
    settings: S3Settings
    storage: Storage


@pytest.fixture
def aws(aws: Aws) -> Aws:
    """A bucket behind the test's gate; its machines have no IAM role."""
    aws.imds.has_role = False
    return aws


@pytest.fixture
def spaces(aws: Aws, tmp_path: Path) -> Spaces:
    where = {"KEDGE_SPACES_BUCKET": aws.bucket, "KEDGE_SPACES_REGION": REGION, "KEDGE_SPACES_ENDPOINT": aws.gate.url}
    settings = read_settings({**where, **KEYS}, SPACES)
    assert settings
    connect = partial(connect_with_keys, settings)
    storage = open_storage(connect, data_memory=tmp_path / "memory", clock=SystemClock())
    return Spaces(settings=settings, storage=storage)


def headers_of(aws: Aws, method: str) -> list[dict[str, str]]:
    return [headers for asked, _, headers in aws.gate.asked if asked == method]


def nothing(_done: int, _total: int) -> None:
    """Ignore the progress."""


def test_results_get_from_the_machine_to_the_laptop(aws: Aws, spaces: Spaces, tmp_path: Path) -> None:
    """The machine signs with the keys that it received over SSH, and requests no role."""
    keys = tmp_path / "spaces.json"
    keys.write_text(spaces.settings.secret_files("seal")["spaces.json"])
    url = spaces.storage.results.url.replace("/opt/kedge/private/spaces.json", str(keys))
    box = Box(tmp_path / "machine", store_url=url, env={"AWS_EC2_METADATA_SERVICE_ENDPOINT": aws.imds.url})
    try:
        box.begin("watch")
        box.start('echo 0.5 > "$KEDGE_OUTPUT_DIR/loss"')
        wait_for(
            lambda: (seen := spaces.storage.results.last_upload(RUN)) is not None and seen.command.state == "succeeded"
        )
    finally:
        box.close()
    spaces.storage.results.fetch(RUN, str(tmp_path / "home"), nothing)
    assert (tmp_path / "home/output/loss").read_text() == "0.5\n"
    sent = headers_of(aws, "PUT")
    assert sent
    assert all("Credential=DO00KEY/" in headers["authorization"] for headers in sent)
    assert not any("x-amz-security-token" in headers for headers in sent)
    assert aws.imds.tokens == set()


def test_a_machine_whose_keys_are_missing_says_so_at_once(aws: Aws, spaces: Spaces, tmp_path: Path) -> None:
    """It does not wait for a role that never appears."""
    url = spaces.storage.results.url.replace("/opt/kedge/private", str(tmp_path))
    box = Box(tmp_path / "machine", store_url=url, env={"AWS_EC2_METADATA_SERVICE_ENDPOINT": aws.imds.url})
    try:
        done = box.call("pull-code", "--sha256", "0" * 64, "0123abcd")
    finally:
        box.close()
    assert done.returncode == 1
    assert b"spaces.json" in done.stderr


def test_code_and_data_are_uploaded_without_amazon_s_own_extensions(aws: Aws, spaces: Spaces, tmp_path: Path) -> None:
    """Other stores refuse checksums in trailers. Deletions send the checksum that other stores require."""
    work = tmp_path / "work"
    work.mkdir()
    (work / "train.py").write_text("print('hello')\n")
    source = GitCodeSource(work, state=tmp_path / "state", clock=SystemClock())
    spaces.storage.stage.put_code(RUN, source, nothing)
    mount = DataMount(target="data", source=str(work))
    spaces.storage.data.put_data(mount, nothing)
    (work / "train.py").write_text("print('other')\n")
    spaces.storage.data.put_data(mount, nothing, delete=True)
    for headers in (*headers_of(aws, "PUT"), *headers_of(aws, "POST")):
        assert not [name for name in headers if name.startswith(("x-amz-checksum", "x-amz-trailer"))], headers
        assert headers.get("content-encoding", "") != "aws-chunked"
    assert all(headers.get("content-md5") for headers in headers_of(aws, "POST"))
    assert len(aws.keys("data/")) == 2
    assert aws.keys(f"runs/{RUN}/code/")


def test_the_region_determines_the_endpoint() -> None:
    """A user may set another endpoint. The repr has no keys."""
    place = read_settings(NYC3, SPACES)
    assert place
    assert (place.endpoint, place.region) == ("https://nyc3.digitaloceanspaces.com", "nyc3")
    assert "very-secret" not in repr(place)
    assert "DO00KEY" not in repr(place)
    other = read_settings({**NYC3, "KEDGE_SPACES_ENDPOINT": "http://127.0.0.1:9000/"}, SPACES)
    assert other
    assert other.endpoint == "http://127.0.0.1:9000"


def test_the_machine_is_told_the_bucket_and_the_path_of_its_keys() -> None:
    """The URL that it gets has no keys."""
    found = read_settings(NYC3, SPACES)
    assert found
    place = parse_s3_url(found.url("runs"))
    where = ("mine", "runs", "nyc3", "https://nyc3.digitaloceanspaces.com")
    assert place == (*where, "/opt/kedge/private/spaces.json", "")
    assert "DO00KEY" not in found.url("runs")


def test_without_a_bucket_there_is_no_store() -> None:
    """Keys alone may be for another bucket."""
    assert read_settings(KEYS, SPACES) is None


@pytest.mark.parametrize("missing", ["KEDGE_SPACES_REGION", *KEYS])
def test_the_error_for_an_incomplete_bucket_names_what_is_missing(missing: str) -> None:
    """It comes before any request."""
    found = read_settings({name: value for name, value in NYC3.items() if name != missing}, SPACES)
    assert found
    for use in (found.require_keys, lambda: connect_with_keys(found), lambda: found.secret_files("seal")):
        with pytest.raises(BadRequestError) as caught:
            use()
    assert f"{missing} is not" in caught.value.why


def test_any_s3_store_can_be_configured_with_other_variables() -> None:
    """For clouds without buckets. Its endpoint has to be set."""
    environ = {
        "KEDGE_STORE_BUCKET": "mine",
        "KEDGE_STORE_ENDPOINT": "https://s3.example.org",
        "KEDGE_STORE_ACCESS_KEY_ID": "KEY",
        "KEDGE_STORE_SECRET_ACCESS_KEY": "very-secret",
    }
    found = read_settings(environ, KEDGE_STORE)
    assert found
    where = ("mine", "runs", "us-east-1", "https://s3.example.org", "/opt/kedge/private/store.json", "")
    assert parse_s3_url(found.url("runs")) == where
    assert list(found.secret_files("seal")) == ["store.json"]
    assert "S3 keys" in found.caveats[0]
    nowhere = read_settings({**environ, "KEDGE_STORE_ENDPOINT": ""}, KEDGE_STORE)
    assert nowhere
    with pytest.raises(BadRequestError) as caught:
        nowhere.require_keys()
    assert caught.value.why == "KEDGE_STORE_BUCKET is set, and KEDGE_STORE_ENDPOINT is not"


def test_naming_the_bucket_loads_no_sdk() -> None:
    """`status` has to answer faster than the SDK loads."""
    named = "orchestrator.adapters.sync.storage, orchestrator.adapters.providers.digitalocean.site"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys, {named}\nprint(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert not {"boto3", "botocore", "pydo"} & set(done.stdout.split())


def test_code_that_another_droplet_has_replaced_is_sent_again(aws: Aws, spaces: Spaces, tmp_path: Path) -> None:
    """All droplets have the same keys, and Spaces reports no SHA-256. So kedge uploads the code again."""
    work = tmp_path / "work"
    work.mkdir()
    (work / "train.py").write_text("print('hello')\n")
    source = GitCodeSource(work, state=tmp_path / "state", clock=SystemClock())
    staged = spaces.storage.stage.put_code(RUN, source, nothing)
    key = f"runs/{RUN}/code/{staged.sha256}.tar.gz"
    aws.write(key, b"evil")
    assert spaces.storage.stage.put_code(RUN, source, nothing) == staged
    assert hashlib.sha256(aws.read(key) or b"").hexdigest() == staged.sha256


def test_a_plan_says_which_results_a_droplet_s_keys_can_access(tmp_path: Path) -> None:
    """Only if there is such a bucket.

    fact: do-spaces-key-grants
    """
    bare = Context(state_dir=tmp_path, runtime_dir=tmp_path, clock=SystemClock(), key_file=tmp_path / "key")
    assert open_backing("do", bare).store_caveats == ()
    (said,) = open_backing("do", replace(bare, environ=NYC3)).store_caveats
    assert "replaces other runs' results in mine" in said
    assert KEYS["SPACES_SECRET_ACCESS_KEY"] not in said
