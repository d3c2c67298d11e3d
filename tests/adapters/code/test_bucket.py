"""Code is sent through the bucket: SSH carries only its hash, and the real agent downloads it."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from orchestrator.adapters.host.clock import SystemClock
from orchestrator.adapters.store.stage import Stage
from orchestrator.adapters.sync.code.bucket import BucketCodeSource
from orchestrator.agent.s3.imds import ENDPOINT_VARIABLE
from orchestrator.core.errors import KedgeError
from tests.adapters.buckets import asked, bucket_of, laptop_client
from tests.adapters.code.conftest import Box
from tests.adapters.code.test_sending import AWKWARD, Spy
from tests.adapters.code.trees import picture
from tests.agent.aws import Aws, Fault


@pytest.fixture
def cloud_box(box: Box, aws: Aws) -> Box:
    """A machine that knows its store, and finds its credentials as on AWS does."""
    config = msgspec.json.decode((box.root / "machine.json").read_bytes())
    config["store_url"] = bucket_of(laptop_client(aws), aws.bucket).url
    (box.root / "machine.json").write_bytes(msgspec.json.encode(config))
    launcher = Path(box.machine.agent)
    agent = launcher.with_name("kedge-agent-on-aws")
    launcher.rename(agent)
    launcher.write_text(f'#!/bin/sh\n{ENDPOINT_VARIABLE}={aws.imds.url} exec "{agent}" "$@"\n')
    launcher.chmod(0o755)
    return box


def source(box: Box, aws: Aws, work: Path) -> BucketCodeSource:
    stage = Stage(bucket_of(laptop_client(aws), aws.bucket))
    return BucketCodeSource(work, state=box.state, clock=SystemClock(), stage=stage)


def sync(box: Box, aws: Aws, work: Path) -> str:
    return source(box, aws, work).send(box.remote, box.machine, lambda _done, _total: None)


def test_the_tree_arrives_unchanged_and_deleted_files_disappear(cloud_box: Box, aws: Aws, work: Path) -> None:
    """With odd names, modes and links. No content is sent over SSH."""
    for name in AWKWARD:
        path = work / os.fsdecode(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name * 3)
    (work / "link").symlink_to("deep")
    (work / "tool.sh").write_text("#!/bin/sh\n")
    (work / "tool.sh").chmod(0o755)
    spy = Spy(cloud_box.remote)
    first = sync(replace(cloud_box, remote=spy), aws, work)
    assert picture(cloud_box.code) == picture(work)
    assert cloud_box.hash_in_place() == first
    (work / "tool.sh").unlink()
    assert sync(replace(cloud_box, remote=spy), aws, work) != first
    assert picture(cloud_box.code) == picture(work)
    assert spy.sent == []


def test_unchanged_code_causes_no_request_to_the_bucket(cloud_box: Box, aws: Aws, work: Path) -> None:
    """There is one call over SSH, and the machine has nothing to do."""
    first = sync(cloud_box, aws, work)
    before = len(aws.gate.asked)
    assert sync(cloud_box, aws, work) == first
    assert asked(aws, since=before) == []


def test_a_machine_that_lost_its_code_gets_it_again(cloud_box: Box, aws: Aws, work: Path) -> None:
    """The laptop's cache is only a hint: another laptop's upload or an expired object does no harm."""
    first = sync(cloud_box, aws, work)
    other = work.with_name("other")
    other.mkdir()
    (other / "mine.py").write_text("mine")
    sync(replace(cloud_box, state=cloud_box.state.with_name("other laptop")), aws, other)
    for key in aws.keys("runs/"):
        aws.s3.delete_object(Bucket=aws.bucket, Key=key)
    assert sync(cloud_box, aws, work) == first
    assert picture(cloud_box.code) == picture(work)


def test_a_machine_without_permission_to_read_the_bucket_is_reported(cloud_box: Box, aws: Aws, work: Path) -> None:
    """The error has the agent's message, and the machine keeps its old code."""
    sync(cloud_box, aws, work)
    before = picture(cloud_box.code)
    (work / "new.py").write_text("new")
    made = source(cloud_box, aws, work)
    Stage(bucket_of(laptop_client(aws), aws.bucket)).put_code("run-1", made, lambda _done, _total: None)
    aws.gate.faults += [Fault("GET", "/code/", status=403, code="AccessDenied")]
    with pytest.raises(KedgeError, match="could not take the code from the bucket") as caught:
        made.send(cloud_box.remote, cloud_box.machine, lambda _done, _total: None)
    assert "AccessDenied" in caught.value.why
    assert picture(cloud_box.code) == before
