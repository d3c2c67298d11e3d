"""Files from the web: whole or not at all, resumed, verified, encrypted."""

from __future__ import annotations

import hashlib
import os
import ssl
import time
from pathlib import Path
from typing import Any

import pytest
import trustme

from tests.agent.sources.machine import Machine, files_below, zipped
from tests.agent.sources.web import Answer, Serve, Site

CONTENT = os.urandom(5_000_000)


@pytest.fixture
def site(serve: Serve) -> Site:
    return serve(Site({"/set.bin": CONTENT}))


def test_a_file_of_the_web_is_fetched_once_and_verified(machine: Machine, site: Site) -> None:
    """It is at the target, its source is recorded, and the next call makes no request."""
    digest = hashlib.sha256(CONTENT).hexdigest()
    source = f"{site.url}/set.bin#sha256={digest}"
    assert machine.fetch(source).read_bytes() == CONTENT
    assert machine.record() == {
        "source": source, "target": "data/set", "version": f"sha256:{digest}", "files": 1, "bytes": len(CONTENT),
    }  # fmt: skip
    machine.fetch(source)
    assert len(site.asked) == 1
    assert list(machine.layout.data.glob(".fetching/*")) == []


def test_a_file_that_was_removed_from_the_target_is_fetched_again(machine: Machine, site: Site) -> None:
    """A record of a file that is missing doesn't count."""
    machine.fetch(f"{site.url}/set.bin").unlink()
    assert machine.fetch(f"{site.url}/set.bin").read_bytes() == CONTENT


def test_another_source_replaces_what_was_at_the_target(machine: Machine, site: Site) -> None:
    """All of it, and only once the new one is complete."""
    site.files["/other.zip"] = zipped({"a.txt": b"a"})
    machine.fetch(f"{site.url}/set.bin")
    machine.refuse(f"{site.url}/missing")
    assert machine.fetch(f"{site.url}/set.bin").read_bytes() == CONTENT
    assert files_below(machine.fetch(f"{site.url}/other.zip#unpack")) == {"a.txt": b"a"}
    assert len(site.asked) == 3


def test_an_interrupted_download_is_resumed(machine: Machine, site: Site) -> None:
    """With a range request, on condition that the content is still the same."""
    site.cuts = [3_000_000, 1_000_000]
    assert machine.fetch(f"{site.url}/set.bin").read_bytes() == CONTENT
    starts = [int(text.strip("bytes=-") or 0) for text in site.sent("range")]
    assert starts == [0, 3_000_000, 4_000_000]
    assert site.sent("if-range")[1:] == [f'"{hashlib.md5(CONTENT).hexdigest()}"'] * 2


def test_a_new_attempt_resumes_the_download_of_the_one_before(machine: Machine, site: Site) -> None:
    """What the first process downloaded is kept."""
    site.cuts = [3_000_000]
    original, site.answer = site.answer, lambda asked: original(asked) if len(site.asked) == 1 else Answer(404)  # type: ignore[method-assign]
    assert "does not exist" in str(machine.refuse(f"{site.url}/set.bin"))
    site.answer = original  # type: ignore[method-assign]
    assert machine.fetch(f"{site.url}/set.bin").read_bytes() == CONTENT
    assert site.sent("range")[-1] == "bytes=3000000-"


def test_a_resumed_download_does_not_mix_old_and_new_content(machine: Machine, site: Site) -> None:
    """A mixture of the old and the new file would be neither."""
    later = os.urandom(4_000_000)
    site.cuts = [3_000_000]
    original = site.answer

    def answer(asked: Any) -> Any:
        site.files["/set.bin"] = CONTENT if len(site.asked) == 1 else later
        return original(asked)

    site.answer = answer  # type: ignore[method-assign]
    assert machine.fetch(f"{site.url}/set.bin").read_bytes() == later


def test_a_wrong_checksum_is_refused(machine: Machine, site: Site) -> None:
    """Nothing is put in place, and the next attempt starts from nothing."""
    error = machine.refuse(f"{site.url}/set.bin#sha256={'0' * 64}")
    assert "has the wrong checksum" in str(error)
    assert hashlib.sha256(CONTENT).hexdigest() in error.why
    assert not (machine.layout.data / "data/set").exists()
    machine.refuse(f"{site.url}/set.bin#sha256={'0' * 64}")
    assert site.sent("range") == ["", ""]


def test_requests_to_a_busy_server_are_retried_for_a_while(machine: Machine, site: Site) -> None:
    """A brief failure passes; a lasting one is an error within the given time."""
    site.refusals = [503, 429]
    assert machine.fetch(f"{site.url}/set.bin").read_bytes() == CONTENT
    site.refusals = [503] * 100
    machine.retry_seconds = 1
    began = time.monotonic()
    error = machine.refuse(f"{site.url}/other")
    assert "HTTP 503" in error.why
    assert time.monotonic() - began < 20


@pytest.mark.parametrize(("status", "says"), [(404, "does not exist"), (403, "was denied"), (401, "was denied")])
def test_a_refusal_is_reported_at_once_without_the_query(machine: Machine, site: Site, status: int, says: str) -> None:
    """Waiting wouldn't change it; and the query may contain a signature."""
    site.refusals = [status] * 9
    error = machine.refuse(f"{site.url}/x?signature=hunter2")
    assert says in str(error)
    assert "hunter2" not in str(error)
    assert len(site.asked) == 1


def test_an_unknown_certificate_is_refused_and_a_known_one_is_not(
    machine: Machine, serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It fails at once: the next attempt would get the same certificate."""
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    site = serve(Site({"/x": b"x"}), host="localhost", tls=context)
    machine.retry_seconds = 60
    began = time.monotonic()
    assert "CERTIFICATE_VERIFY_FAILED" in machine.refuse(f"{site.url}/x").why
    assert time.monotonic() - began < 20
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    assert machine.fetch(f"{site.url}/x").read_bytes() == b"x"
    plain = serve(Site({"/y": b"y"}))
    site.moved["/y"] = f"{plain.url}/y"
    assert "isn't encrypted" in machine.refuse(f"{site.url}/y").why
    assert plain.asked == []


def test_unencrypted_sources_are_not_fetched(machine: Machine, site: Site) -> None:
    """Neither its own address nor a redirect may be unencrypted."""
    assert "isn't encrypted" in machine.refuse("http://192.0.2.1/x").why
    site.moved["/x"] = "http://169.254.169.254/latest/meta-data/"
    assert "isn't encrypted" in machine.refuse(f"{site.url}/x").why


def test_a_file_larger_than_the_disk_is_refused_before_it_is_fetched(machine: Machine, site: Site) -> None:
    """The error says what to do about it."""
    site.claims["/set.bin"] = 10**16
    error = machine.refuse(f"{site.url}/set.bin")
    assert "doesn't fit" in str(error)
    assert "disk_size" in error.fix
