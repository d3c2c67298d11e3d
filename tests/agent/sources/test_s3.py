"""Other people's buckets: a prefix, or one object."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from orchestrator.agent.base.wire import MachineConfig
from orchestrator.agent.data.sources import s3
from orchestrator.agent.data.sources.draft import SourceDraft
from orchestrator.agent.data.sources.task import Task
from orchestrator.agent.data.sources.transfer_progress import TransferProgress
from orchestrator.agent.s3.client import locate, parse_s3_url
from orchestrator.agent.s3.imds import ENDPOINT_VARIABLE
from tests.agent.aws import REGION, Aws, Fault
from tests.agent.sources.machine import Machine, files_below

LARGE = os.urandom(3_000_000)
FACES = {"README.md": b"# faces", "data/a.bin": LARGE, "data/b.txt": b"b", "data/deep/c d#.txt": b"c", "x.txt": b""}
KEYS = {"AWS_ACCESS_KEY_ID": "AKIATEST", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": REGION}


@pytest.fixture
def bucket(aws: Aws, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> Aws:
    """A bucket with a data set, on the server of the machine's own store."""
    monkeypatch.setenv(ENDPOINT_VARIABLE, aws.imds.url)
    machine.store_url = aws.store_url
    for name, content in FACES.items():
        aws.write(f"sets/faces/{name}", content)
    aws.write("sets/faces/empty/", b"")
    aws.write("sets/faces-other/x", b"x")
    return aws


def test_a_prefix_is_mirrored_with_the_machine_s_role(machine: Machine, bucket: Aws) -> None:
    """Everything below the prefix, and nothing next to it."""
    for address in (f"s3://{bucket.bucket}/sets/faces/", f"s3://{bucket.bucket}/sets/faces"):
        assert files_below(machine.fetch(address)) == FACES
    assert "ASIA" in bucket.gate.asked[-1][2]["authorization"]


def test_a_listing_of_many_pages_is_complete(machine: Machine, bucket: Aws, tmp_path: Path) -> None:
    """As with more than a thousand objects."""
    draft = SourceDraft(tmp_path / "draft")
    draft.prepare()
    record = MachineConfig("m", "r", "aws", "", 0, 0, "0", store_url=machine.store_url)
    fetched = s3.fetch(Task(f"s3://{bucket.bucket}/sets/faces/", draft, TransferProgress("x"), record), page=2)
    assert files_below(fetched.path) == FACES


def test_a_single_object_is_the_target_and_its_download_is_resumed(machine: Machine, bucket: Aws) -> None:
    """The keys among the secrets take precedence over the role."""
    bucket.gate.faults.append(Fault("GET", "a.bin", cut_after=2_000_000))
    address = f"s3://{bucket.bucket}/sets/faces/data/a.bin?region={REGION}&endpoint={bucket.gate.url}"
    machine.store_url = ""
    assert machine.fetch(address, **KEYS).read_bytes() == LARGE
    assert all("AKIATEST" in headers["authorization"] for _, _, headers in bucket.gate.asked)
    assert [headers.get("range") for method, _, headers in bucket.gate.asked if method == "GET"] == [
        None,
        "bytes=2000000-",
    ]


def test_an_object_that_was_replaced_is_not_mixed_with_its_old_content(machine: Machine, bucket: Aws) -> None:
    """A mixture of the old and the new object would be neither."""
    bucket.gate.faults.append(Fault("GET", "a.bin", status=412, code="PreconditionFailed"))
    assert "was changed" in str(machine.refuse(f"s3://{bucket.bucket}/sets/faces/data/a.bin"))


def test_an_attempt_on_a_prefix_fetches_only_what_is_missing(machine: Machine, bucket: Aws) -> None:
    """Complete files are kept if the bucket still has the same ones."""
    bucket.gate.faults += [Fault("GET", "a.bin", cut_after=2_000_000), Fault("GET", "a.bin", status=403, code="No")]
    address = f"s3://{bucket.bucket}/sets/faces/"
    machine.refuse(address)
    bucket.gate.asked.clear()
    assert files_below(machine.fetch(address)) == FACES
    [(_, path, headers)] = [asked for asked in bucket.gate.asked if "list-type" not in asked[1]]
    assert path.endswith("a.bin")
    assert headers["range"] == "bytes=2000000-"


@pytest.mark.parametrize(
    ("code", "says", "fix"),
    [
        ("AccessDenied", "was denied", "AWS_ACCESS_KEY_ID"),
        ("NoSuchBucket", "does not exist", "correct the address"),
        ("AuthorizationHeaderMalformed", "another region", "?region="),
    ],
)
def test_s3_s_refusals_say_what_to_do(machine: Machine, bucket: Aws, code: str, says: str, fix: str) -> None:
    """At once: waiting wouldn't change them."""
    bucket.gate.refuses = code
    error = machine.refuse(f"s3://{bucket.bucket}/sets/faces/")
    assert says in str(error)
    assert fix in error.fix


def test_a_prefix_without_objects_is_no_empty_data_set(machine: Machine, bucket: Aws) -> None:
    """More likely the address is wrong."""
    assert "nothing at" in str(machine.refuse(f"s3://{bucket.bucket}/sets/facets/"))


def test_public_data_that_the_role_may_not_read_is_read_unsigned(machine: Machine, bucket: Aws) -> None:
    """A signed request is refused although everybody may read the bucket; the refusals name its region."""
    name = f"public.data.{bucket.bucket[-8:]}"
    bucket.publish(name, region="us-west-2", files={"faces/a.bin": b"a" * 1000, "faces/b.txt": b"b", "one.txt": b"1"})
    assert files_below(machine.fetch(f"s3://{name}/faces/")) == {"a.bin": b"a" * 1000, "b.txt": b"b"}
    asked = bucket.gate.asked
    assert [_region(headers) for _, _, headers in asked] == [REGION, "us-west-2", "", "", ""]
    assert machine.fetch(f"s3://{name}/one.txt", "one.txt").read_bytes() == b"1"


def test_a_machine_without_a_role_reads_public_data_at_once(machine: Machine, bucket: Aws) -> None:
    """As on a droplet: there are no credentials to sign with, and nothing waits for any."""
    name = f"public-{bucket.bucket[-8:]}"
    bucket.publish(name, region="us-west-2", files={"one.txt": b"1"})
    machine.store_url = ""
    assert machine.fetch(f"s3://{name}/one.txt?endpoint={bucket.gate.url}").read_bytes() == b"1"
    assert [_region(headers) for _, _, headers in bucket.gate.asked] == ["", ""]


def test_an_error_for_private_data_says_how_runs_may_read_it(machine: Machine, bucket: Aws) -> None:
    """The signed refusal counts; the machine's own bucket is never asked without a signature."""
    name = f"private-{bucket.bucket[-8:]}"
    bucket.s3.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": REGION})
    bucket.gate.rules.give_away(name)
    error = machine.refuse(f"s3://{name}/one.txt")
    assert "was denied" in str(error)
    assert f"kedge bootstrap --provider aws --read-bucket {name}" in error.fix
    bucket.gate.rules.give_away(bucket.bucket)
    bucket.gate.asked.clear()
    machine.refuse(f"s3://{bucket.bucket}/sets/faces/")
    assert all(_region(headers) == REGION for _, _, headers in bucket.gate.asked)


@pytest.mark.parametrize(
    ("bucket_name", "host", "base"),
    [
        ("plain", "plain.s3.eu-west-3.amazonaws.com", ""),
        ("with.dots", "s3.eu-west-3.amazonaws.com", "/with.dots"),
    ],
)
def test_a_bucket_with_dots_is_addressed_by_its_path(bucket_name: str, host: str, base: str) -> None:
    """The certificate of *.s3.REGION.amazonaws.com covers no name with dots (fact: s3-dots)."""
    assert locate(parse_s3_url(f"s3://{bucket_name}/x?region=eu-west-3")) == (False, host, base)


def _region(headers: dict[str, str]) -> str:
    """Return the region in a request's signature; empty for an unsigned request."""
    found = re.search(r"/([a-z0-9-]+)/s3/aws4_request", headers.get("authorization", ""))
    return found[1] if found else ""
