"""What every object store does, whatever kind it is."""

from __future__ import annotations

import io
from functools import partial
from pathlib import Path

import pytest

from orchestrator.adapters.store.folder import FolderBucket
from orchestrator.adapters.store.object_store import ObjectStore
from orchestrator.adapters.store.s3 import S3Bucket, connect_with_keys
from orchestrator.adapters.store.settings import S3Settings
from orchestrator.adapters.store.transfer import TransferProgress
from orchestrator.core.errors import ConflictError
from tests.adapters.buckets import bucket_of, laptop_client
from tests.agent.aws import REGION, Aws

LARGE = bytes(range(256)) * (80 << 10)  # 20 MiB: in parts


def keyed_bucket(aws: Aws) -> S3Bucket:
    """Name one that knows no checksums, as Spaces."""
    settings = S3Settings(
        bucket=aws.bucket,
        region=REGION,
        endpoint=aws.gate.url,
        access_key="key",
        secret_key="secret",
        keys_file="/opt/kedge/private/store.json",
        has_checksums=False,
    )
    return S3Bucket(partial(connect_with_keys, settings), "runs")


@pytest.fixture(params=["folder", "s3", "s3 without checksums"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def store(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if kind == "folder":
        return FolderBucket(tmp_path / "store")
    aws: Aws = request.getfixturevalue("aws")
    return bucket_of(laptop_client(aws), aws.bucket) if kind == "s3" else keyed_bucket(aws)


def uploaded(store: ObjectStore, key: str, content: bytes, folder: Path) -> int:
    (folder / "file").write_bytes(content)
    steps: list[int] = []
    store.upload(key, folder / "file", TransferProgress(lambda done, _total: steps.append(done), len(content)))
    return steps[-1]


def test_what_is_written_is_read_whole_and_from_an_offset_on(store: ObjectStore) -> None:
    """And no more of it than was asked for."""
    store.write("run/a", b"0123456789")
    found = store.read("run/a", 100)
    assert found is not None
    assert (found.content, found.etag) == (b"0123456789", store.etag("run/a"))
    short = store.read("run/a", 3)
    assert short is not None
    assert short.content == b"0123", "one byte more, which tells that it is longer"
    assert b"".join(store.stream("run/a", 4)) == b"456789"


def test_what_is_not_there_is_nothing_and_no_error_to_remove(store: ObjectStore) -> None:
    """But nobody can stream it."""
    store.write("run/a", b"a")
    assert (store.read("run/b", 10), store.etag("run/b")) == (None, "")
    assert not store.has("run/b", io.BytesIO(b""))
    with pytest.raises(FileNotFoundError):
        list(store.stream("run/b", 0))
    store.delete(["run/b"])
    store.remove("nobody/")
    assert list(store.list("")) == ["run/a"]


def test_an_object_is_replaced_only_by_those_who_know_what_is_there(store: ObjectStore) -> None:
    """The second of two writers is told so; so is one whose object is gone."""
    first = store.replace("run/a", b"first", "")
    with pytest.raises(ConflictError):
        store.replace("run/a", b"mine", "")
    second = store.replace("run/a", b"second", first)
    with pytest.raises(ConflictError):
        store.replace("run/a", b"mine", first)
    store.delete(["run/a"])
    with pytest.raises(ConflictError):
        store.replace("run/a", b"mine", second)
    assert store.read("run/a", 10) is None


def test_a_store_with_checksums_tells_what_it_holds(kind: str, store: ObjectStore, tmp_path: Path) -> None:
    """One without them never says so: what may be there is then written again."""
    store.write("run/a", b"small")
    assert uploaded(store, "run/b", LARGE, tmp_path) == len(LARGE)
    knows = kind != "s3 without checksums"
    assert store.has("run/a", io.BytesIO(b"small")) is knows
    assert store.has("run/b", io.BytesIO(LARGE)) is knows
    assert not store.has("run/a", io.BytesIO(b"other"))
    assert b"".join(store.stream("run/b", 0)) == LARGE


def test_a_folder_is_listed_and_removed_alone(store: ObjectStore) -> None:
    """Another one, whose name begins alike, stays."""
    for key in ("run/a", "run/deep/b", "run-2/c"):
        store.write(key, b"x", for_has=False)
    written = store.list("run/")
    assert set(written) == {"run/a", "run/deep/b"}
    assert all(at.tzinfo is not None for at in written.values())
    store.remove("run/")
    assert list(store.list("")) == ["run-2/c"]
