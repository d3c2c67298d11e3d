"""S3 as the object store: interrupted transfers are resumed, transient errors are retried for a while."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from itertools import pairwise

import pytest

from orchestrator.agent.s3.bucket import S3Store
from orchestrator.agent.s3.client import BucketPrefix, Client, S3Error, parse_s3_url
from orchestrator.agent.s3.imds import ENDPOINT_VARIABLE
from orchestrator.agent.s3.multipart import PART_BYTES, part_bytes, split
from tests.agent.aws import REGION, Aws, Fault
from tests.cloudbox.aws.wire.moto_state import ACCOUNT

PREFIX = "runs/digits-1a2b"
LARGE = 2 * PART_BYTES + 1000


@pytest.fixture
def client(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    monkeypatch.setenv(ENDPOINT_VARIABLE, aws.imds.url)
    client = Client(parse_s3_url(aws.store_url), retry_seconds=60)
    yield client
    client.close()


@pytest.fixture
def store(client: Client) -> S3Store:
    return S3Store(client, PREFIX, page=3)


def chunks(content: bytes, size: int = 1 << 20) -> Iterator[bytes]:
    for start in range(0, len(content), size):
        yield content[start : start + size]


def test_what_is_written_is_read_and_listed_and_deleted(aws: Aws, store: S3Store) -> None:
    """Small objects with any name; a missing one is None or an OSError, and deleting it is no error."""
    names = ["blobs/a", "blobs/b c+d&é=?%2F.txt", "manifest.json", "blobs/bell\x07"]
    for name in names:
        store.write(name, name.encode())
    assert [store.read(name) for name in names] == [name.encode() for name in names]
    assert store.keys("blobs/") == set(names) - {"manifest.json"}
    assert aws.read(f"{PREFIX}/{names[1]}") == names[1].encode()
    store.delete(names[1])
    store.delete(names[1])
    assert store.read(names[1]) is None
    with pytest.raises(FileNotFoundError):
        next(store.get(names[1]))


def test_a_listing_of_many_pages_is_complete_and_one_level_deep(aws: Aws, store: S3Store) -> None:
    """More keys than fit on one page are all there, and deeper keys aren't."""
    for number in range(8):
        aws.write(f"{PREFIX}/blobs/{number}", b"")
    aws.write(f"{PREFIX}/blobs/deeper/x", b"")
    aws.write(f"{PREFIX}-other/blobs/x", b"")
    assert store.keys("blobs/") == {f"blobs/{number}" for number in range(8)}


@pytest.mark.parametrize("size", [0, 1, PART_BYTES, PART_BYTES + 1, LARGE])
def test_an_object_of_any_size_arrives_whole(aws: Aws, store: S3Store, size: int) -> None:
    """It is uploaded in one piece or in parts, and read back piece by piece."""
    content = os.urandom(size)
    store.put("blobs/x", chunks(content))
    assert aws.read(f"{PREFIX}/blobs/x") == content
    assert b"".join(store.get("blobs/x")) == content
    assert aws.unfinished() == 0


def test_an_upload_whose_source_fails_leaves_nothing(aws: Aws, store: S3Store) -> None:
    """Neither the object nor the parts that were uploaded before."""

    def breaks_off() -> Iterator[bytes]:
        yield from chunks(os.urandom(LARGE))
        raise ValueError("the file has changed")

    with pytest.raises(ValueError, match="has changed"):
        store.put("blobs/x", breaks_off())
    assert (aws.keys(), aws.unfinished()) == ([], 0)
    assert any("partNumber=2" in path for _, path, _ in aws.gate.asked)


def test_a_part_that_is_refused_ends_the_whole_upload(aws: Aws, store: S3Store) -> None:
    """A permanent error is reported, and the upload is aborted."""
    aws.gate.faults.append(Fault("PUT", "partNumber=2", status=403, code="AccessDenied"))
    with pytest.raises(S3Error, match="AccessDenied"):
        store.put("blobs/x", chunks(os.urandom(LARGE)))
    assert (aws.keys(), aws.unfinished()) == ([], 0)


@pytest.mark.parametrize(
    "faults",
    [
        [Fault("PUT", "partNumber=2", status=503, code="SlowDown"), Fault("POST", "uploads", status=500)],
        [Fault("PUT", "partNumber=1", lost=True)],
        [Fault("POST", "uploadId", lost=True)],
        [Fault("POST", "uploadId", status=200, code="InternalError")],
        [Fault("PUT", "partNumber=2", status=400, code="RequestTimeout")],
    ],
    ids=["busy", "part lost", "completion lost", "error with status 200", "too slow"],
)
def test_an_upload_survives_transient_errors(aws: Aws, store: S3Store, faults: list[Fault]) -> None:
    """S3 is busy, answers get lost, or an error follows a status of 200."""
    aws.gate.faults += faults
    content = os.urandom(LARGE)
    store.put("blobs/x", chunks(content))
    assert aws.read(f"{PREFIX}/blobs/x") == content
    assert (aws.gate.faults, aws.unfinished()) == ([], 0)


def test_an_interrupted_download_is_resumed(aws: Aws, store: S3Store) -> None:
    """With a range request, and only for the same object."""
    content = os.urandom(LARGE)
    aws.write(f"{PREFIX}/x", content)
    aws.gate.faults += [Fault("GET", "/x", cut_after=3_000_000), Fault("GET", "/x", cut_after=1_500_000)]
    assert b"".join(store.get("x")) == content
    ranges = [headers.get("range", "") for _, _, headers in aws.gate.asked]
    assert ranges[0] == ""
    assert 0 < int(ranges[1][6:-1]) <= 3_000_000 < int(ranges[2][6:-1])


def test_a_resumed_download_does_not_mix_two_objects(aws: Aws, store: S3Store) -> None:
    """A mixture of the old and the new object would be neither."""
    aws.write(f"{PREFIX}/x", os.urandom(LARGE))
    aws.gate.faults.append(Fault("GET", "/x", cut_after=3_000_000))
    pieces = store.get("x")
    next(pieces)
    aws.write(f"{PREFIX}/x", os.urandom(LARGE))
    with pytest.raises(S3Error, match="412"):
        list(pieces)


def test_retries_have_an_end(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that keeps failing is an OSError, after growing pauses and within the given time."""
    monkeypatch.setenv(ENDPOINT_VARIABLE, aws.imds.url)
    client = Client(parse_s3_url(aws.store_url), retry_seconds=3)
    aws.gate.faults += [Fault("PUT", status=500)] * 100
    began = time.monotonic()
    with pytest.raises(OSError, match="500"):
        S3Store(client, PREFIX).write("x", b"")
    assert 0.5 < time.monotonic() - began < 60
    assert 3 <= len(aws.gate.asked) < 10
    client.close()


def test_a_denied_request_fails_at_once(aws: Aws, store: S3Store) -> None:
    """Waiting wouldn't change a policy."""
    aws.gate.refuses = "AccessDenied"
    began = time.monotonic()
    with pytest.raises(S3Error, match="403 AccessDenied"):
        store.read("x")
    assert time.monotonic() - began < 30


def test_a_bucket_that_is_gone_is_an_error_and_not_an_empty_store(client: Client, aws: Aws) -> None:
    """Taken for an empty store, a run would start from scratch."""
    place = parse_s3_url(aws.store_url)._replace(bucket="kedge-no-such-bucket")
    elsewhere = Client(place, retry_seconds=0)
    with pytest.raises(S3Error, match="NoSuchBucket"):
        S3Store(elsewhere, PREFIX).read("manifest.json")
    elsewhere.close()


def test_expired_credentials_are_renewed(aws: Aws, store: S3Store) -> None:
    """Before they expire, and when S3 says that they have."""
    store.write("x", b"1")
    store.write("x", b"2")
    assert aws.imds.issued == 1
    aws.gate.faults.append(Fault("PUT", status=400, code="ExpiredToken"))
    store.write("x", b"3")
    assert aws.imds.issued == 2
    assert "ASIA2" in aws.gate.asked[-1][2]["authorization"]


def test_connections_are_kept(aws: Aws, store: S3Store) -> None:
    """A request costs one round trip: the client closes no connection."""
    for _ in range(3):
        store.write("x", b"")
    assert {headers.get("connection", "") for _, _, headers in aws.gate.asked} == {""}


def test_no_object_is_too_large_for_the_number_of_parts() -> None:
    """10,000 parts reach S3's limit of 5 TiB, and none is larger than a part may be."""
    sizes = [part_bytes(number) for number in range(10_000)]
    assert sum(sizes) > 5 << 40
    assert max(sizes) <= 5 << 30
    assert min(sizes) >= 5 << 20
    assert all(first <= second for first, second in pairwise(sizes))


def test_all_parts_but_the_last_have_the_full_size() -> None:
    """However the chunks are cut."""
    content = os.urandom(LARGE)
    for size in (1 << 16, PART_BYTES, 3 * PART_BYTES):
        parts = list(split(chunks(content, size)))
        assert [len(part) for part in parts] == [PART_BYTES, PART_BYTES, 1000]
        assert b"".join(parts) == content


def test_a_store_is_found_by_its_url() -> None:
    """Bucket, prefix, region, and an endpoint if there is one."""
    assert parse_s3_url("s3://b/runs?region=eu-west-3") == BucketPrefix("b", "runs", "eu-west-3", "")
    assert parse_s3_url("s3://b?region=r&endpoint=http://127.0.0.1:5000") == BucketPrefix(
        "b", "", "r", "http://127.0.0.1:5000"
    )
    with pytest.raises(ValueError, match="not of the form s3://"):
        parse_s3_url("https://b/runs")


def test_the_region_is_the_machine_s_where_the_url_names_none(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    """The metadata service returns it."""
    monkeypatch.setenv(ENDPOINT_VARIABLE, aws.imds.url)
    client = Client(parse_s3_url(aws.store_url)._replace(region=""))
    S3Store(client, PREFIX).write("x", b"")
    assert f"/{REGION}/s3/" in aws.gate.asked[-1][2]["authorization"]
    client.close()


def test_a_bucket_of_another_account_is_neither_written_nor_read(aws: Aws, store: S3Store) -> None:
    """S3 itself refuses if somebody else takes the name over: every request has the expected owner."""
    aws.write(f"{PREFIX}/code", b"rm -rf /")
    aws.gate.rules.give_away(aws.bucket, is_trap=True)
    for ask in (
        lambda: store.read("code"),
        lambda: store.write("x", b""),
        lambda: store.put("x", chunks(os.urandom(LARGE))),
        lambda: next(store.get("code")),
        lambda: store.keys("blobs/"),
        lambda: store.delete("code"),
    ):
        with pytest.raises(S3Error, match=f"of account {ACCOUNT}"):
            ask()
    assert aws.read(f"{PREFIX}/code") == b"rm -rf /"
    assert aws.read(f"{PREFIX}/x") is None
