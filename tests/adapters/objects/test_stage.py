"""What machines need at boot is uploaded once, under the hash of its content, even if others write to the bucket."""

from __future__ import annotations

import gzip
import hashlib
import json
import tarfile
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from orchestrator.adapters.host.clock import SystemClock
from orchestrator.adapters.store.stage import Stage
from orchestrator.adapters.sync.code.source import GitCodeSource
from orchestrator.core.errors import BadRequestError, KedgeError, UnreachableError
from orchestrator.core.protocol.wire import RunConfig, TaskConfig
from orchestrator.core.transfers import StagedCode
from tests.adapters.buckets import asked, bucket_of, laptop_client
from tests.agent.aws import Aws, Fault

RUN = "digits-1a2b"
CONFIG = RunConfig(
    run=RUN,
    job="digits",
    mode="standard",
    setup="",
    tasks=(
        TaskConfig(name="", command="python train.py", supervisor="systemd", restarts=3, restart_after=5.0, grace=30.0),
    ),
    envs={"A": "é"},
)


@pytest.fixture
def stage(aws: Aws) -> Stage:
    return Stage(bucket_of(laptop_client(aws), aws.bucket))


@pytest.fixture
def code(tmp_path: Path) -> GitCodeSource:
    work = tmp_path / "my work"
    work.mkdir()
    (work / "train.py").write_text("print('hello')\n")
    return GitCodeSource(work, state=tmp_path / "state", clock=SystemClock())


def put(stage: Stage, code: GitCodeSource) -> StagedCode:
    return stage.put_code(RUN, code, lambda _done, _total: None)


def key_of(staged: StagedCode) -> str:
    return f"runs/{RUN}/code/{staged.sha256}.tar.gz"


def test_code_is_stored_under_its_sha256_in_the_format_that_the_agent_reads(
    aws: Aws, stage: Stage, code: GitCodeSource
) -> None:
    """A gzip'd tar whose last member is the manifest."""
    staged = put(stage, code)
    assert staged.hash == code.summary().hash
    raw = aws.read(key_of(staged)) or b""
    assert hashlib.sha256(raw).hexdigest() == staged.sha256
    with tarfile.open(fileobj=BytesIO(gzip.decompress(raw))) as tar:
        assert tar.getnames() == ["train.py", ".kedge-manifest.json"]


def test_code_that_is_there_is_not_uploaded_again(aws: Aws, stage: Stage, code: GitCodeSource) -> None:
    """One request is enough to find out."""
    staged = put(stage, code)
    before = len(aws.gate.asked)
    assert put(stage, code) == staged
    assert asked(aws, since=before) == [f"HEAD /{key_of(staged)}"]


@pytest.mark.parametrize("size", [0, 20 << 20], ids=["in one piece", "in parts"])
@pytest.mark.parametrize("checksum", ["SHA256", "CRC32"])
def test_code_that_somebody_has_replaced_is_uploaded_again(
    aws: Aws, stage: Stage, code: GitCodeSource, tmp_path: Path, size: int, checksum: Any
) -> None:
    """S3 computes the checksums itself, so an object can't claim those of another content."""
    (tmp_path / "my work" / "weights.bin").write_bytes(hashlib.shake_128(b"x").digest(size))
    staged = put(stage, code)
    before = len(aws.gate.asked)
    assert put(stage, code) == staged
    assert asked(aws, since=before) == [f"HEAD /{key_of(staged)}"], "it was there, and was uploaded again"
    aws.s3.put_object(Bucket=aws.bucket, Key=key_of(staged), Body=b"evil", ChecksumAlgorithm=checksum)
    assert put(stage, code) == staged
    assert hashlib.sha256(aws.read(key_of(staged)) or b"").hexdigest() == staged.sha256


def test_large_code_goes_up_in_parts_with_checksums(
    aws: Aws, stage: Stage, code: GitCodeSource, tmp_path: Path
) -> None:
    """Each part has its SHA-256, and progress reaches the size of the upload."""
    with (tmp_path / "my work" / "weights.bin").open("wb") as file:
        for seed in range(20):
            file.write(hashlib.shake_128(bytes([seed])).digest(1 << 20))
    steps: list[tuple[int, int]] = []
    staged = stage.put_code(RUN, code, lambda done, total: steps.append((done, total)))
    parts = [headers for method, path, headers in aws.gate.asked if method == "PUT" and "partNumber" in path]
    assert len(parts) == 2
    assert all("x-amz-checksum-sha256" in headers for headers in parts)
    size = len(aws.read(key_of(staged)) or b"")
    assert steps[-1] == (size, size)


def test_a_cut_upload_leaves_nothing(aws: Aws, stage: Stage, code: GitCodeSource, tmp_path: Path) -> None:
    """No object, and no part that would be billed. The next upload succeeds."""
    (tmp_path / "my work" / "weights.bin").write_bytes(hashlib.shake_128(b"x").digest(20 << 20))
    aws.gate.faults.append(Fault("PUT", "partNumber=2", status=500, code="InternalError"))
    with pytest.raises(KedgeError):
        put(stage, code)
    assert aws.keys("runs/") == []
    assert aws.unfinished() == 0
    assert aws.keys("runs/") == [] != [put(stage, code)]
    assert len(aws.keys("runs/")) == 1


def test_the_start_configuration_holds_no_secrets(aws: Aws, stage: Stage) -> None:
    """One with secrets is refused: they don't belong in a bucket."""
    sha256 = stage.put_start(RUN, CONFIG)
    raw = aws.read(f"runs/{RUN}/start.json") or b""
    assert (json.loads(raw)["envs"], hashlib.sha256(raw).hexdigest()) == ({"A": "é"}, sha256)
    secret = RunConfig(**{**{f: getattr(CONFIG, f) for f in CONFIG.__slots__}, "secrets": {"TOKEN": "hunter2"}})
    with pytest.raises(BadRequestError, match="TOKEN") as caught:
        stage.put_start(RUN, secret)
    assert "hunter2" not in str(caught.value)


def test_the_agent_is_uploaded_once(aws: Aws, stage: Stage) -> None:
    """Its key, below the run's prefix, contains the hash of its content."""
    key = stage.put_agent(RUN, b"archive")
    assert key == f"agent/{hashlib.sha256(b'archive').hexdigest()}.tar.gz"
    assert aws.read(f"runs/{RUN}/{key}") == b"archive"
    before = len(aws.gate.asked)
    assert stage.put_agent(RUN, b"archive") == key
    assert asked(aws, since=before) == [f"HEAD /runs/{RUN}/{key}"]
    aws.write(f"runs/{RUN}/{key}", b"evil")
    assert stage.put_agent(RUN, b"archive") == key
    assert aws.read(f"runs/{RUN}/{key}") == b"archive"


def test_a_bucket_that_does_not_answer_is_unreachable(aws: Aws, stage: Stage) -> None:
    """It may come back, so this error has its own exit code."""
    aws.gate.faults.append(Fault("HEAD", lost=True))
    with pytest.raises(UnreachableError):
        stage.put_agent(RUN, b"archive")
