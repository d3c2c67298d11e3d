"""A bucket of Spaces, for which moto's S3 stands in: what the laptop and the machine do with it, and with its keys."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.adapters.clock import SystemClock
from orchestrator.adapters.code.source import GitCodeSource
from orchestrator.adapters.providers import Context, open_backing
from orchestrator.adapters.providers.digitalocean.spaces import Spaces, open_spaces, read_place
from orchestrator.agent.s3client import parse_place
from orchestrator.core.errors import BadRequestError
from orchestrator.core.job import DataMount
from tests.agent.aws import REGION, Aws
from tests.agent.box import RUN, Box, wait_for

KEYS = {"SPACES_ACCESS_KEY_ID": "DO00KEY", "SPACES_SECRET_ACCESS_KEY": "very-secret"}
NYC3 = {"KEDGE_SPACES_BUCKET": "mine", "KEDGE_SPACES_REGION": "nyc3", **KEYS}


@pytest.fixture
def aws(aws: Aws) -> Aws:
    """A bucket behind a gate; its machines have no role."""
    aws.imds.has_role = False
    return aws


@pytest.fixture
def spaces(aws: Aws, tmp_path: Path) -> Spaces:
    where = {"KEDGE_SPACES_BUCKET": aws.bucket, "KEDGE_SPACES_REGION": REGION, "KEDGE_SPACES_ENDPOINT": aws.gate.url}
    found = open_spaces({**where, **KEYS}, data_memory=tmp_path / "memory", clock=SystemClock())
    assert found
    return found


def headers_of(aws: Aws, method: str) -> list[dict[str, str]]:
    return [headers for asked, _, headers in aws.gate.asked if asked == method]


def nothing(_done: int, _total: int) -> None:
    """No progress is looked at."""


def test_results_go_from_the_machine_to_the_laptop(aws: Aws, spaces: Spaces, tmp_path: Path) -> None:
    """The machine signs with the keys that it was brought, and asks nobody for a role."""
    keys = tmp_path / "spaces.json"
    keys.write_text(spaces.secret_files("seal")["spaces.json"])
    url = spaces.store.url.replace("/opt/kedge/private/spaces.json", str(keys))
    box = Box(tmp_path / "machine", store_url=url, env={"AWS_EC2_METADATA_SERVICE_ENDPOINT": aws.imds.url})
    try:
        box.begin("watch")
        box.start('echo 0.5 > "$KEDGE_OUTPUT_DIR/loss"')
        wait_for(lambda: (seen := spaces.store.last_shipment(RUN)) is not None and seen.command.state == "succeeded")
    finally:
        box.close()
    spaces.store.fetch(RUN, str(tmp_path / "home"), nothing)
    assert (tmp_path / "home/output/loss").read_text() == "0.5\n"
    sent = headers_of(aws, "PUT")
    assert sent
    assert all("Credential=DO00KEY/" in headers["authorization"] for headers in sent)
    assert not any("x-amz-security-token" in headers for headers in sent)
    assert aws.imds.tokens == set()


def test_a_machine_whose_keys_are_missing_says_so_at_once(aws: Aws, spaces: Spaces, tmp_path: Path) -> None:
    """It doesn't wait for a role that never comes."""
    url = spaces.store.url.replace("/opt/kedge/private", str(tmp_path))
    box = Box(tmp_path / "machine", store_url=url, env={"AWS_EC2_METADATA_SERVICE_ENDPOINT": aws.imds.url})
    try:
        done = box.call("pull-code", "--sha256", "0" * 64, "0123abcd")
    finally:
        box.close()
    assert done.returncode == 1
    assert b"spaces.json" in done.stderr


def test_code_and_data_go_up_with_nothing_that_only_amazon_knows(aws: Aws, spaces: Spaces, tmp_path: Path) -> None:
    """No checksums in trailers, which others refuse; tidying up sends the one that others ask for."""
    work = tmp_path / "work"
    work.mkdir()
    (work / "train.py").write_text("print('hello')\n")
    source = GitCodeSource(work, state=tmp_path / "state", clock=SystemClock())
    spaces.stage.put_code(RUN, source, nothing)
    mount = DataMount(target="data", source=str(work))
    spaces.data.put_data(mount, nothing)
    (work / "train.py").write_text("print('other')\n")
    spaces.data.put_data(mount, nothing, delete=True)
    for headers in (*headers_of(aws, "PUT"), *headers_of(aws, "POST")):
        assert not [name for name in headers if name.startswith(("x-amz-checksum", "x-amz-trailer"))], headers
        assert headers.get("content-encoding", "") != "aws-chunked"
    assert all(headers.get("content-md5") for headers in headers_of(aws, "POST"))
    assert len(aws.keys("data/")) == 2
    assert aws.keys(f"runs/{RUN}/code/")


def test_the_region_names_the_endpoint() -> None:
    """Which may be another one; the keys are in no representation."""
    place = read_place(NYC3)
    assert place
    assert (place.endpoint, place.region) == ("https://nyc3.digitaloceanspaces.com", "nyc3")
    assert "very-secret" not in repr(place)
    assert "DO00KEY" not in repr(place)
    other = read_place({**NYC3, "KEDGE_SPACES_ENDPOINT": "http://127.0.0.1:9000/"})
    assert other
    assert other.endpoint == "http://127.0.0.1:9000"


def test_the_machine_is_told_where_the_bucket_is_and_where_its_keys_are(tmp_path: Path) -> None:
    """What it is told holds none of them."""
    found = open_spaces(NYC3, data_memory=tmp_path, clock=SystemClock())
    assert found
    place = parse_place(found.store.url)
    where = ("mine", "runs", "nyc3", "https://nyc3.digitaloceanspaces.com")
    assert place == (*where, "/opt/kedge/private/spaces.json", "")
    assert "DO00KEY" not in found.store.url


def test_without_a_bucket_there_is_no_store(tmp_path: Path) -> None:
    """Keys alone are of somebody else's."""
    assert open_spaces(KEYS, data_memory=tmp_path, clock=SystemClock()) is None


@pytest.mark.parametrize("missing", ["KEDGE_SPACES_REGION", *KEYS])
def test_a_bucket_that_cannot_be_opened_is_refused_by_what_is_missing(missing: str) -> None:
    """Before anything is contacted."""
    with pytest.raises(BadRequestError) as caught:
        read_place({name: value for name, value in NYC3.items() if name != missing})
    assert f"{missing} is not" in caught.value.why


def test_naming_the_bucket_loads_no_sdk() -> None:
    """`status` has to answer before one could have been loaded."""
    done = subprocess.run(
        [sys.executable, "-c", "import sys, orchestrator.adapters.providers.digitalocean.spaces\nprint(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert not {"boto3", "botocore", "pydo"} & set(done.stdout.split())


def test_code_that_another_droplet_has_replaced_is_sent_again(aws: Aws, spaces: Spaces, tmp_path: Path) -> None:
    """All droplets have the same keys. Spaces tells no SHA-256: what may be there already is written again."""
    work = tmp_path / "work"
    work.mkdir()
    (work / "train.py").write_text("print('hello')\n")
    source = GitCodeSource(work, state=tmp_path / "state", clock=SystemClock())
    staged = spaces.stage.put_code(RUN, source, nothing)
    key = f"runs/{RUN}/code/{staged.sha256}.tar.gz"
    aws.write(key, b"evil")
    assert spaces.stage.put_code(RUN, source, nothing) == staged
    assert hashlib.sha256(aws.read(key) or b"").hexdigest() == staged.sha256


def test_a_plan_says_whose_results_a_droplets_keys_reach(tmp_path: Path) -> None:
    """And only where there is such a bucket.

    fact: do-spaces-key-grants
    """
    bare = Context(state_dir=tmp_path, runtime_dir=tmp_path, clock=SystemClock(), key_file=tmp_path / "key")
    assert open_backing("do", bare).store_caveats == ()
    (said,) = open_backing("do", replace(bare, environ=NYC3)).store_caveats
    assert "replaces other runs' results in mine" in said
    assert KEYS["SPACES_SECRET_ACCESS_KEY"] not in said
