"""A whole life at AWS, with a secret in every place for one: each is found only where docs/security.md says."""

from __future__ import annotations

import base64
import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.adapters.aws.world import set_up
from tests.cloudbox.aws.box import Box
from tests.cloudbox.aws.leftovers import secrets_of
from tests.support.laptop import Laptop
from tests.sweep.folders import search_bucket
from tests.sweep.lives import Life, living
from tests.sweep.table import assert_allowed

BUCKET = "kedge-test"
KEYS = """\
[default]
aws_access_key_id = AKIAKEDGEBOXOPERATOR
aws_secret_access_key = {}
aws_session_token = {}
"""


@pytest.fixture
def life(box: Box, laptop: Laptop, tmp_path: Path) -> Iterator[Life]:
    """A user with an AWS account, with keys in the shell and others in ~/.aws, and tokens of other clouds."""
    set_up(box)
    with living(laptop, tmp_path, supervisor="systemd") as life:
        laptop.extra_env |= {**box.env, "KEDGE_PROVIDER": "aws", "KEDGE_SSH_FROM": "127.0.0.1/32"}
        for name in ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "DIGITALOCEAN_ACCESS_TOKEN"):
            laptop.extra_env[name] = life.secrets.make(name)
        (life.home / ".aws").mkdir()
        keys = (life.secrets.make(f"~/.aws/credentials: {part}") for part in ("secret key", "session token"))
        (life.home / ".aws" / "credentials").write_text(KEYS.format(*keys))
        life.job = life.job.replace(" | tee ", " | tee /dev/shm/written ")
        life.job += "resources: {accelerators: T4, use_spot: true, region: us-east-1}\n"
        yield life
    assert box.billing() == [], "something is left billing"


def from_file(life: Life) -> dict[str, str]:
    """Return the variables with which a command uses the keys in ~/.aws."""
    names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
    return {**dict.fromkeys(names, ""), "AWS_SHARED_CREDENTIALS_FILE": str(life.home / ".aws" / "credentials")}


def search_instance(box: Box, life: Life) -> None:
    """Search the machine, and what the cloud got for it."""
    [machine] = box.machines()
    answer = box.client("ec2").describe_instance_attribute(InstanceId=machine["instance_id"], Attribute="userData")
    user_data = base64.b64decode(answer["UserData"]["Value"])
    life.secrets.add("credentials of the role", role_key(machine["metadata_url"]))
    life.search_user_data(user_data)
    life.search_machine(machine["instance_id"])


def search_parameters(box: Box, life: Life) -> None:
    """Read every secret that was stored for the run's two machines: each has its own."""
    names = secrets_of(box)
    assert {name.split("/")[4] for name in names} == {"m1", "m2"}
    for name in names:
        found = box.client("ssm").get_parameter(Name=name, WithDecryption=True)["Parameter"]
        life.search(f"parameter {name}", found["Value"].encode())


def role_key(url: str) -> str:
    """Query the metadata service as the machine does."""
    put = urllib.request.Request(
        f"{url}/latest/api/token", method="PUT", headers={"X-aws-ec2-metadata-token-ttl-seconds": "60"}
    )
    with urllib.request.urlopen(put) as answer:
        headers = {"X-aws-ec2-metadata-token": answer.read().decode()}
    at = f"{url}/latest/meta-data/iam/security-credentials/"
    for _ in range(2):
        with urllib.request.urlopen(urllib.request.Request(at, headers=headers)) as answer:
            said = answer.read().decode()
        at += said
    return str(json.loads(said)["SecretAccessKey"])


@pytest.mark.timeout(600)
def test_no_secret_is_found_in_a_place_that_the_page_does_not_list(box: Box, life: Life) -> None:
    """Planned, launched, queried, changed, stopped, reclaimed, resumed from its checkpoint, ended."""
    life.begin()
    life.kedge("fetch", env=from_file(life))
    life.change()
    search_instance(box, life)
    [machine] = box.machines()
    box.reclaim(machine["instance_id"], notice_seconds=None)
    life.kedge("resume", "--yes", "--detach")
    life.wait_until_it_trains()
    search_instance(box, life)
    life.add(search_bucket(life.secrets, box.client("s3"), BUCKET))
    search_parameters(box, life)
    life.fail_unexpectedly()
    life.kedge("teardown", "--yes", env=from_file(life))
    life.add(search_bucket(life.secrets, box.client("s3"), BUCKET))
    for call in box.calls():
        life.search(f"api {call.service} {call.action}", json.dumps(call.params).encode())
    assert secrets_of(box) == []
    life.end()
    assert_allowed(life.found, life.secrets.names, "aws")
