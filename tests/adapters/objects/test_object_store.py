"""What every kind of object store does."""

from __future__ import annotations

import io
import threading
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
    """Return a bucket that is opened with keys and knows no checksums, as at Spaces."""
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


def test_an_object_is_read_whole_or_from_an_offset(store: ObjectStore) -> None:
    """Not more than the limit is read."""
    store.write("run/a", b"0123456789")
    found = store.read("run/a", 100)
    assert found is not None
    assert (found.content, found.etag) == (b"0123456789", store.etag("run/a"))
    short = store.read("run/a", 3)
    assert short is not None
    assert short.content == b"0123", "one byte more than the limit shows that the object is longer"
    assert b"".join(store.stream("run/a", 4)) == b"456789"


def test_a_missing_object_reads_as_none_and_can_be_deleted(store: ObjectStore) -> None:
    """But it can't be streamed."""
    store.write("run/a", b"a")
    assert (store.read("run/b", 10), store.etag("run/b")) == (None, "")
    assert not store.has("run/b", io.BytesIO(b""))
    with pytest.raises(FileNotFoundError):
        list(store.stream("run/b", 0))
    store.delete(["run/b"])
    store.remove("nobody/")
    assert list(store.list("")) == ["run/a"]


def test_an_object_is_replaced_only_if_it_is_unchanged(store: ObjectStore) -> None:
    """The second of two writers gets a conflict; so does a writer whose object is gone."""
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


def test_a_store_with_checksums_knows_whether_it_has_a_content(kind: str, store: ObjectStore, tmp_path: Path) -> None:
    """A store without them always says no, so the content is uploaded again."""
    store.write("run/a", b"small")
    assert uploaded(store, "run/b", LARGE, tmp_path) == len(LARGE)
    knows = kind != "s3 without checksums"
    assert store.has("run/a", io.BytesIO(b"small")) is knows
    assert store.has("run/b", io.BytesIO(LARGE)) is knows
    assert not store.has("run/a", io.BytesIO(b"other"))
    assert b"".join(store.stream("run/b", 0)) == LARGE


def test_a_folder_is_listed_and_removed_without_its_neighbour(store: ObjectStore) -> None:
    """A folder whose name begins the same stays."""
    for key in ("run/a", "run/deep/b", "run-2/c"):
        store.write(key, b"x", for_has=False)
    written = store.list("run/")
    assert set(written) == {"run/a", "run/deep/b"}
    assert all(at.tzinfo is not None for at in written.values())
    store.remove("run/")
    assert list(store.list("")) == ["run-2/c"]


def test_an_object_that_is_removed_while_they_are_listed_is_left_out(tmp_path: Path) -> None:
    """The agent on this computer removes what no result refers to any more."""
    store = FolderBucket(tmp_path / "store")
    store.write("run/kept", b"x")
    removed = tmp_path / "store" / "run" / "removed"
    over = threading.Event()

    def come_and_go() -> None:
        while not over.is_set():
            removed.touch()
            removed.unlink()

    other = threading.Thread(target=come_and_go)
    other.start()
    try:
        assert all("run/kept" in store.list("run/") for _ in range(2_000))
    finally:
        over.set()
        other.join()
