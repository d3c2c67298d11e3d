"""`start: boot` with secrets on DigitalOcean: they are sent over SSH, and a droplet that never gets them ends."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Iterator

import boto3
import pytest

from tests.chaos.cloud_kills import unsettled
from tests.cloudbox.digitalocean.box import DigitalOceanBox
from tests.cloudbox.digitalocean.life.hosting import name_of
from tests.support.laptop import TRAIN, Laptop
from tests.support.waiting import wait_until
from tests.sweep.folders import init_of, read_file

BUCKET = "kedge-boot-secrets"
SECRET = "hf_only-the-droplet"
JOB = """
    name: toy
    workdir: .
    start: boot
    setup: test -n "$HF_TOKEN"
    run: printenv HF_TOKEN | tr -d '\\n' | sha256sum >>"$KEDGE_OUTPUT_DIR/digest" && python3 train.py
    outputs: [results]
    secrets: [HF_TOKEN]
    envs: {STEPS: 3, PAUSE: 0.1}
    deadline: 10m
    budget: 5
    resources: {infra: do, instance_type: s-2vcpu-4gb}
    supervisor: {kind: tmux, restarts: 0, grace: 5s}
"""


@pytest.fixture
def laptop(do_box: DigitalOceanBox, moto: str, laptop: Laptop) -> Iterator[Laptop]:
    """A user's computer with a DigitalOcean account and a bucket; a launch with a secret was killed.

    It died after the API's answer; its droplet boots, and nobody has connected to it yet.
    """
    session = boto3.Session(aws_access_key_id="a", aws_secret_access_key="b", region_name="us-east-1")
    session.client("s3", endpoint_url=moto).create_bucket(Bucket=BUCKET)
    laptop.extra_env |= {
        **do_box.environ,
        "KEDGE_PROVIDER": "do",
        "KEDGE_SSH_FROM": "127.0.0.1/32",
        "KEDGE_SPACES_BUCKET": BUCKET,
        "KEDGE_SPACES_ENDPOINT": moto,
        "SPACES_ACCESS_KEY_ID": "DO00KEDGEBOX",
        "SPACES_SECRET_ACCESS_KEY": "spaces-secret",
        "HF_TOKEN": SECRET,
    }
    shutil.copy(TRAIN, laptop.home / "train.py")
    laptop.write_job(JOB)
    # The ledger's writes: open_run, intent and outcome of the code, intent of the creation, the machine.
    assert laptop.drive("crashing_launch.py", "before", "5").returncode == -9
    yield laptop
    assert do_box.meter.billing() == [], "something is left billing"


def test_secrets_are_sent_by_whoever_continues_and_has_them(do_box: DigitalOceanBox, laptop: Laptop) -> None:
    """A shell without the variable is told its name, and sends nothing; another shell sends the secret."""
    del laptop.extra_env["HF_TOKEN"]
    laptop.kedge("logs", code=2)
    assert "waits for its secrets: the variable HF_TOKEN is not set" in laptop.errors
    laptop.kedge("resume", "--yes", code=2)
    assert "the variable HF_TOKEN is not set" in laptop.errors
    (droplet,) = do_box.droplets()
    with pytest.raises(FileNotFoundError):
        read_file(name_of(droplet), "/opt/kedge/supplied")
    laptop.extra_env["HF_TOKEN"] = SECRET
    laptop.kedge("resume", "--yes")
    (results,) = (laptop.home / "kedge-results").glob("toy-*")
    # A command that is over when `resume` comes to its start is started again.
    digests = set((results / "output" / "digest").read_text().split())
    assert digests == {hashlib.sha256(SECRET.encode()).hexdigest(), "-"}
    assert SECRET not in droplet.user_data
    assert do_box.droplets() == []
    assert unsettled(laptop) == []


def test_a_droplet_that_never_gets_its_secrets_ends(do_box: DigitalOceanBox, laptop: Laptop) -> None:
    """Its timer for that, which is ten minutes, runs now; `kedge reap` deletes what is off and bills on."""
    (droplet,) = do_box.droplets()
    wait_until(lambda: is_prepared(name_of(droplet)), seconds=120)
    spaces = [f"--target={init_of(name_of(droplet))}", "--mount", "--uts", "--ipc", "--net", "--pid"]
    subprocess.run(["nsenter", *spaces, "systemctl", "--no-block", "start", "kedge-unready.service"], check=True)
    wait_until(lambda: [each.powered for each in do_box.droplets()] == [False], seconds=120)
    said = laptop.kedge("reap", "--yes", "--provider", "do")
    assert "it is powered off, and still bills" in said
    assert do_box.droplets() == []
    assert unsettled(laptop) == []


def is_prepared(machine: str) -> bool:
    """Tell whether a droplet waits for its supplies."""
    try:
        return b'"units"' in read_file(machine, "/opt/kedge/boot.jsonl")
    except (OSError, ValueError, LookupError):
        return False
