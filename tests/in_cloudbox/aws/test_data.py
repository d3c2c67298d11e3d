"""The laptop's data on AWS in the box: the real program, the bucket, and machines that mirror it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.adapters.aws.world import set_up
from tests.cloudbox.aws.box import Box, Seen
from tests.support.laptop import Laptop
from tests.support.waiting import wait_until

LOOK = """
import hashlib, json, os, sys


def describe(path):
    if os.path.islink(path):
        return ["link", os.readlink(path)]
    if os.path.isdir(path):
        return ["folder"]
    status = os.stat(path)
    with open(path, "rb") as file:
        return [hashlib.sha256(file.read()).hexdigest(), status.st_mode & 0o777, status.st_mtime_ns]


os.chdir(sys.argv[1])
seen = {}
for folder, folders, files in os.walk("."):
    folders[:] = [name for name in folders if name != ".kedge"]
    seen.update((path, describe(path)) for path in (os.path.join(folder, name) for name in folders + files))
print(json.dumps(seen, sort_keys=True))
"""
"""Lists a folder's content in the same form on the laptop and on the machine."""

JOB = """
    name: toy
    workdir: code
    start: {start}
    data: {{"the set": pictures, labels.csv: labels.csv}}
    outputs: [results]
    run: |
      python3 look.py "the set" > results/seen.json
      cat labels.csv >> results/labels
      stat -c %m "the set/" > results/disk
      sleep {seconds}
    deadline: 10m
    budget: 5
    resources: {{accelerators: T4, use_spot: true, region: us-east-1}}
    supervisor: {{kind: {supervisor}, restarts: 0, grace: 10s}}
"""
NAMES = [
    b"plain.png",
    b'with space\'s "quotes" $HOME *.png',
    b"-rf",
    b"line\nbreak",
    "Größe-日本.png".encode(),
    b"\xff\xfe.bin",
]
SHARD_OF_ITS_OWN = 8 << 20


@pytest.fixture
def laptop(box: Box, laptop: Laptop) -> Iterator[Laptop]:
    """A user's computer with an AWS account, code, and data with awkward names."""
    set_up(box)
    laptop.extra_env |= {**box.env, "KEDGE_PROVIDER": "aws", "KEDGE_SSH_FROM": "127.0.0.1/32"}
    (laptop.home / "code").mkdir()
    (laptop.home / "code" / "look.py").write_text(LOOK)
    (laptop.home / "labels.csv").write_text("cat,dog\n")
    pictures = laptop.home / "pictures"
    for folder in (b"", b"deep", b"deep/er than\nthat"):
        (pictures / os.fsdecode(folder)).mkdir()
        for name in NAMES:
            (pictures / os.fsdecode(folder) / os.fsdecode(name)).write_bytes((folder + name) * 100)
    (pictures / "empty").touch()
    (pictures / "nothing inside").mkdir()
    (pictures / "link").symlink_to("deep/plain.png")
    (pictures / "deep" / "plain.png").chmod(0o755)
    yield laptop
    assert box.billing() == [], "something is left billing"


def write_job(laptop: Laptop, start: str) -> None:
    """Write the user's job: it ends at once if the machine starts it, else it waits for what comes."""
    seconds, supervisor = (0, "systemd") if start == "boot" else (600, "tmux")
    laptop.write_job(JOB.format(start=start, seconds=seconds, supervisor=supervisor))


def laptop_content(laptop: Laptop) -> dict[str, Any]:
    """Describe the laptop's folder."""
    argv = [sys.executable, "code/look.py", "pictures"]
    return dict(json.loads(subprocess.check_output(argv, cwd=laptop.home)))


def machine_content(laptop: Laptop) -> dict[str, Any]:
    """Describe the machine's folder."""
    return dict(json.loads(laptop.kedge("exec", "--", "python3", "look.py", "the set")))


def data_set_calls(box: Box) -> list[Seen]:
    """Return the calls about data sets, from any computer."""
    return [seen for seen in box.calls("s3") if "data/" in str(seen.params)]


def free_gib() -> int:
    """Return the free space where machines have their root disks."""
    return shutil.disk_usage("/").free >> 30


def stored(box: Box) -> dict[str, int]:
    """Return the shards in the bucket with their sizes."""
    s3 = box.client("s3")
    names = [bucket["Name"] for bucket in s3.list_buckets()["Buckets"]]
    rows = [row for name in names for row in s3.list_objects_v2(Bucket=name, Prefix="data/").get("Contents", ())]
    return {row["Key"]: row["Size"] for row in rows if "/shards/" in row["Key"]}


def test_a_machine_that_starts_by_itself_has_the_data_before_its_first_line(box: Box, laptop: Laptop) -> None:
    """Through the bucket, before anything is rented: names, modes, times and links are the laptop's.

    This machine has its own local disk with more room than the root disk: the data is there.
    """
    box.change_first_boot(local_disk_gib=free_gib() + 50)
    write_job(laptop, "boot")
    said = laptop.kedge("launch", "--yes")
    assert said.index("stage data for the set") < said.index("create machine")
    (results,) = (laptop.home / "kedge-results").glob("toy-*")
    output = results / "output" / "results"
    assert json.loads((output / "seen.json").read_text()) == laptop_content(laptop)
    assert (output / "labels").read_text() == "cat,dog\n"
    assert (output / "disk").read_text() == "/opt/kedge/data\n"


def test_changes_reach_a_machine_during_its_run(box: Box, laptop: Laptop) -> None:
    """`sync-data` sends only changes, deletes if asked to, and makes one request for each data set."""
    write_job(laptop, "ssh")
    run = laptop.json("launch", "--yes", "--detach")["run"]
    wait_until(lambda: "cat,dog" in laptop.kedge("exec", "--", "sh", "-c", "cat results/labels || true"))
    assert json.loads(laptop.kedge("exec", "--", "cat", "results/seen.json")) == laptop_content(laptop)

    before = stored(box)
    pictures = laptop.home / "pictures"
    (pictures / "plain.png").write_bytes(b"a new picture")
    (pictures / "deep" / "-rf").unlink()
    laptop.kedge("sync-data")
    assert [size for key, size in stored(box).items() if key not in before] == [len(b"a new picture")]
    there = machine_content(laptop)
    assert {**there, **laptop_content(laptop)} == there
    assert "./deep/-rf" in there
    laptop.kedge("sync-data", "--delete")
    assert machine_content(laptop) == laptop_content(laptop)

    # The first sync after the youngest file is old enough records which stats can be relied on.
    wait_until(lambda: _settled(pictures))
    laptop.kedge("sync-data")
    box.reset_calls()
    laptop.kedge("sync-data")
    assert [seen.action for seen in data_set_calls(box)] == ["HeadObject"] * 2
    laptop.kedge("teardown", run, "--yes", "--no-fetch")


def test_data_on_a_volume_is_mirrored_once_for_all_machines(box: Box, laptop: Laptop) -> None:
    """The second machine finds the data there, and downloads only changes."""
    write_job(laptop, "boot")
    job = laptop.home / "kedge.yaml"
    volumes = "volumes: {the disk: {name: pictures, size: 1}}\n"
    job.write_text(job.read_text().replace("the set", "the disk/set") + volumes)
    for number in range(2):
        (laptop.home / "pictures" / "changing").write_bytes(b"x" * (100 + number))
        box.reset_calls()
        laptop.kedge("launch", "--yes")
        newest = max((laptop.home / "kedge-results").glob("toy-*"), key=lambda path: path.stat().st_ctime)
        assert json.loads((newest / "output" / "results" / "seen.json").read_text()) == laptop_content(laptop)
    taken = [str(seen.params) for seen in data_set_calls(box) if seen.action == "GetObject"]
    assert len([params for params in taken if "the-disk-set" in params and "/shards/" in params]) == 1
    (volume,) = box.client("ec2").describe_volumes()["Volumes"]
    box.client("ec2").delete_volume(VolumeId=volume["VolumeId"])


def test_an_interrupted_upload_sends_nothing_twice(box: Box, laptop: Laptop) -> None:
    """Nothing is rented while data is missing; the next command sends the missing part."""
    write_job(laptop, "boot")
    for number in range(6):
        (laptop.home / "pictures" / f"large-{number}").write_bytes(os.urandom(SHARD_OF_ITS_OWN))
    box.delay_next("PutObject", 0.01, times=3)
    box.drop_next("PutObject", times=None, before_effect=True)
    laptop.kedge("launch", "--yes", "--detach", code=1)
    assert "can't be written" in laptop.errors
    assert box.client("ec2").describe_instances()["Reservations"] == []
    arrived = stored(box)
    assert len(arrived) == 3
    box.clear_faults()
    box.reset_calls()
    laptop.kedge("launch", "--yes")
    puts = [str(seen.params) for seen in data_set_calls(box) if seen.action == "PutObject"]
    sent = [params for params in puts if "/shards/" in params]
    assert not [key for key in arrived if any(key in params for params in sent)]
    assert len(sent) == len(stored(box)) - len(arrived)
    (seen,) = (laptop.home / "kedge-results").glob("toy-*/output/results/seen.json")
    assert json.loads(seen.read_text()) == laptop_content(laptop)


def _settled(folder: Path) -> bool:
    """Return whether the youngest file is so old that its stat can be relied on."""
    return time.time() - max(path.stat().st_ctime for path in folder.rglob("*") if path.is_file()) > 2.5
