"""A whole life at DigitalOcean, with secrets in all possible places: each is only where docs/security.md says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from orchestrator.adapters.providers.digitalocean.self_deletion import SCOPES
from tests.cloudbox.digitalocean.box import DigitalOceanBox
from tests.cloudbox.digitalocean.life.hosting import name_of
from tests.support.laptop import Laptop
from tests.support.waiting import wait_until
from tests.sweep.folders import search_bucket
from tests.sweep.lives import Life, living
from tests.sweep.table import assert_allowed

BUCKET = "kedge-spaces-sweep"
TOKEN = "DIGITALOCEAN_ACCESS_TOKEN"
DELETE_TOKEN = "KEDGE_DIGITALOCEAN_DELETE_TOKEN"


@pytest.fixture
def spaces(moto: str) -> Any:
    """A Spaces bucket, for which moto's S3 stands in."""
    session = boto3.Session(aws_access_key_id="a", aws_secret_access_key="b", region_name="us-east-1")
    client = session.client("s3", endpoint_url=moto)
    client.create_bucket(Bucket=BUCKET)
    return client


@pytest.fixture
def life(do_box: DigitalOceanBox, moto: str, laptop: Laptop, tmp_path: Path) -> Iterator[Life]:
    """A user with a DigitalOcean account, a bucket, and a token for droplets that end themselves."""
    with living(laptop, tmp_path, supervisor="tmux") as life:
        laptop.extra_env |= {
            **do_box.environ,
            "KEDGE_PROVIDER": "do",
            "KEDGE_SSH_FROM": "127.0.0.1/32",
            "KEDGE_SPACES_BUCKET": BUCKET,
            "KEDGE_SPACES_ENDPOINT": moto,
            "SPACES_ACCESS_KEY_ID": "DO00KEDGEBOX",
            "SPACES_SECRET_ACCESS_KEY": life.secrets.make("SPACES_SECRET_ACCESS_KEY"),
            TOKEN: life.secrets.make(TOKEN, "dop_v1_{}"),
            DELETE_TOKEN: life.secrets.make(DELETE_TOKEN, "dop_v1_{}"),
        }
        do_box.adopt_token(life.secrets.values[TOKEN])
        do_box.adopt_token(life.secrets.values[DELETE_TOKEN], *SCOPES)
        life.job = life.job.replace(" | tee ", " | tee /dev/shm/written ")
        life.job += "resources: {infra: do, instance_type: s-2vcpu-4gb}\n"
        yield life
    assert do_box.meter.billing() == [], "something is left billing"


@pytest.mark.timeout(600)
def test_no_secret_is_found_in_a_place_that_the_page_does_not_list(
    do_box: DigitalOceanBox, spaces: Any, life: Life
) -> None:
    """Planned, launched, queried, changed, stopped; its command dies, and the droplet deletes itself."""
    life.begin()
    life.kedge("fetch")
    life.change()
    [droplet] = do_box.droplets()
    life.search_user_data(droplet.user_data.encode())
    life.search("tags", json.dumps([droplet.name, droplet.tags]).encode())
    life.search_machine(name_of(droplet))
    life.fail_unexpectedly()
    life.kedge("exec", "--", "pkill", "-f", "train.py")
    wait_until(lambda: do_box.droplets() == [], seconds=120)
    life.add(search_bucket(life.secrets, spaces, BUCKET))
    life.kedge("status", "--all")
    life.kedge("fetch")
    life.kedge("teardown", "--yes")
    for call in do_box.calls:
        life.search(f"api {call.method} {call.path}", json.dumps([call.path, call.query, call.body]).encode())
    life.end()
    assert_allowed(life.found, life.secrets.names, "do")
