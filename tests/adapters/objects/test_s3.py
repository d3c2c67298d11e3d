"""Results are fetched from a bucket although connections break, and no part is transferred twice."""

from __future__ import annotations

import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import boto3
import pytest

from orchestrator.adapters.host.clock import SystemClock
from orchestrator.adapters.ledger.sqlite import SqliteLedger
from orchestrator.adapters.store.results import Results
from orchestrator.core.errors import KedgeError, UnreachableError
from orchestrator.engine.observing.uploads import read_uploads
from tests.adapters.buckets import asked, bucket_of, laptop_client
from tests.adapters.objects.backends import RUN, S3Backend, blob_key, fetch, files_below, upload_run
from tests.agent.aws import REGION, Aws, Fault
from tests.support.fakes import FakeProvider, make_world

WEIGHTS = random.Random(1).randbytes(5_000_000)


@pytest.fixture
def backend(aws: Aws) -> S3Backend:
    return S3Backend(aws)


def test_the_url_names_the_region_and_any_endpoint_but_amazons(aws: Aws) -> None:
    """The URL is all that a machine knows of the bucket."""
    assert bucket_of(laptop_client(aws), "b").url == f"s3://b/runs?region={REGION}&endpoint={aws.gate.url}"
    of_amazon = boto3.client("s3", region_name=REGION, aws_access_key_id="a", aws_secret_access_key="b")
    assert bucket_of(of_amazon, "b", "my runs").url == f"s3://b/my%20runs?region={REGION}"
    assert bucket_of(of_amazon, "b", is_shared=True).url == f"s3://b/runs?region={REGION}&shared=1"


def test_a_download_that_breaks_is_continued(aws: Aws, backend: S3Backend, tmp_path: Path) -> None:
    """Within one fetch: bytes that have arrived aren't transferred again."""
    upload_run(backend, {"model.pt": WEIGHTS})
    key = f"/runs/{RUN}/{blob_key(WEIGHTS)}"
    aws.gate.faults += [Fault("GET", key, cut_after=2_000_000), Fault("GET", key, cut_after=1_000_000)]
    steps = fetch(backend, tmp_path / "here")
    assert files_below(tmp_path / "here") == {"model.pt": WEIGHTS}
    ranges = [headers.get("range") for _, path, headers in aws.gate.asked if path.endswith(key)]
    assert ranges[0] is None
    assert all(later is not None and int(later[6:-1]) > 0 for later in ranges[1:])
    assert len(ranges) == 3
    assert steps == sorted(steps)
    assert steps[-1] == (5_000_000, 5_000_000)


def test_a_fetch_that_was_cut_is_continued_by_the_next(aws: Aws, backend: S3Backend, tmp_path: Path) -> None:
    """Complete files stay, partial ones are continued. No partial file has a result's name, and none is left over."""
    upload_run(backend, {"a.txt": b"a", "model.pt": WEIGHTS})
    key = f"/runs/{RUN}/{blob_key(WEIGHTS)}"
    aws.gate.faults += [Fault("GET", key, cut_after=3_000_000)] + [Fault("GET", key, cut_after=0) for _ in range(5)]
    with pytest.raises(UnreachableError):
        fetch(backend, tmp_path / "here")
    aws.gate.faults.clear()
    assert not (tmp_path / "here" / "model.pt").exists()
    before = len(aws.gate.asked)
    fetch(backend, tmp_path / "here")
    assert files_below(tmp_path / "here") == {"a.txt": b"a", "model.pt": WEIGHTS}
    again = [headers["range"] for _, path, headers in aws.gate.asked[before:] if path.endswith(key)]
    assert len(again) == 1
    assert int(again[0][6:-1]) >= 2_000_000
    assert not [line for line in asked(aws, since=before) if line.endswith(blob_key(b"a"))]


def test_a_damaged_partial_download_is_fetched_again(aws: Aws, backend: S3Backend, tmp_path: Path) -> None:
    """It costs one failed fetch, and is never taken for a result."""
    upload_run(backend, {"model.pt": WEIGHTS})
    key = f"/runs/{RUN}/{blob_key(WEIGHTS)}"
    aws.gate.faults += [Fault("GET", key, cut_after=3_000_000)] + [Fault("GET", key, cut_after=0) for _ in range(5)]
    with pytest.raises(UnreachableError):
        fetch(backend, tmp_path / "here")
    aws.gate.faults.clear()
    part = next((tmp_path / "here" / ".kedge-partial").iterdir())
    part.write_bytes(b"x" + part.read_bytes()[1:])
    with pytest.raises(KedgeError, match="damaged"):
        fetch(backend, tmp_path / "here")
    fetch(backend, tmp_path / "here")
    assert files_below(tmp_path / "here") == {"model.pt": WEIGHTS}


def test_a_missing_bucket_is_reported(aws: Aws) -> None:
    """The error names the command that makes it."""
    with pytest.raises(KedgeError, match="no such bucket") as caught:
        Results(bucket_of(laptop_client(aws), "kedge-nobody")).manifest(RUN)
    assert "bootstrap" in caught.value.fix


def test_a_refusal_is_not_an_empty_result(aws: Aws, backend: S3Backend) -> None:
    """The error says that access was denied."""
    aws.gate.refuses = "AccessDenied"
    with pytest.raises(KedgeError, match="AccessDenied"):
        backend.store.manifest(RUN)


def test_the_package_alone_loads_no_sdk() -> None:
    """`status` and `cost` name buckets, and have to stay quick."""
    script = "import orchestrator.adapters.sync.storage, sys; sys.exit(bool({'boto3', 'botocore'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_a_manifest_in_the_archive_tier_concerns_only_its_own_run(aws: Aws, backend: S3Backend, tmp_path: Path) -> None:
    """Its machine put it there, so it can't be read for hours. `status` of other runs and all teardowns still work."""
    client = laptop_client(aws)
    client.put_object(Bucket=aws.bucket, Key=f"runs/{RUN}/manifest.json", Body=b"{}", StorageClass="GLACIER")
    world = replace(make_world(SqliteLedger(tmp_path, SystemClock()), FakeProvider()), store=backend.store)
    assert read_uploads(world, RUN).last is None
    assert "manifest.json can't be read" in read_uploads(world, RUN).problem
    assert world.has_results(RUN)
