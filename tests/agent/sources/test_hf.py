"""The Hugging Face Hub, by its own HTTP API."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.agent.sources.machine import Machine, files_below
from tests.agent.sources.web import Hub, Serve, Site

LARGE = os.urandom(3_000_000)
FACES = {"README.md": b"# faces", "data/a.bin": LARGE, "data/b.txt": b"b", "data/deep/c d#.txt": b"c", "x.txt": b""}


@pytest.fixture
def hub(serve: Serve, storage: Site) -> Hub:
    return serve(Hub(files=dict(FACES), large=("data/a.bin",), storage=storage, token="hf_hunter2"))


def test_a_data_set_of_the_hub_is_there_whole_and_its_token_stays_there(
    machine: Machine, hub: Hub, storage: Site
) -> None:
    """Every file of every page of its tree, as of one commit; the other host sees no token."""
    folder = machine.fetch("hf://datasets/me/faces", HF_ENDPOINT=hub.url, HF_TOKEN="hf_hunter2")
    assert files_below(folder) == FACES
    assert machine.record()["version"] == hub.commit
    assert set(hub.sent("authorization")) == {"Bearer hf_hunter2"}
    assert storage.sent("authorization") == [""]
    assert storage.asked[0].query == {"Signature": ["s3cr3t"]}


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("hf://datasets/me/faces@v1/data", {"a.bin": LARGE, "b.txt": b"b", "deep/c d#.txt": b"c"}),
        ("hf://datasets/me/faces/data/deep/", {"c d#.txt": b"c"}),
    ],
)
def test_a_folder_of_a_repository_lies_at_the_target(
    machine: Machine, hub: Hub, address: str, expected: dict[str, bytes]
) -> None:
    """Without the folders above it."""
    assert files_below(machine.fetch(address, HF_ENDPOINT=hub.url, HF_TOKEN="hf_hunter2")) == expected


def test_a_single_file_of_a_model_is_the_target(machine: Machine, hub: Hub, storage: Site) -> None:
    """One in a folder, which breaks off and is gone on with from the other host."""
    hub.name = "me/model"
    storage.cuts = [1_000_000]
    fetched = machine.fetch("hf://me/model/data/a.bin", HF_ENDPOINT=hub.url, HF_TOKEN="hf_hunter2")
    assert fetched.read_bytes() == LARGE
    assert storage.sent("range") == ["", "bytes=1000000-"]


def test_a_private_repository_without_a_token_names_the_secret(machine: Machine, hub: Hub) -> None:
    """And with a wrong one, it says that it was refused."""
    error = machine.refuse("hf://datasets/me/faces", HF_ENDPOINT=hub.url)
    assert error.fix.startswith("name HF_TOKEN under `secrets`")
    error = machine.refuse("hf://datasets/me/faces", HF_ENDPOINT=hub.url, HF_TOKEN="hf_wrong")
    assert "check that HF_TOKEN is right" in error.fix
    assert "hf_wrong" not in str(error)


@pytest.mark.parametrize(
    "address", ["hf://datasets/me/faces@v9", "hf://datasets/me/other", "hf://datasets/me/faces/no"]
)
def test_what_the_hub_does_not_have_is_told(machine: Machine, hub: Hub, address: str) -> None:
    """A revision, a repository, a path."""
    error = machine.refuse(address, HF_ENDPOINT=hub.url, HF_TOKEN="hf_hunter2")
    assert "correct the address" in error.fix


def test_content_that_the_hub_did_not_promise_is_refused(machine: Machine, hub: Hub, storage: Site) -> None:
    """Large files are known by SHA-256, small ones by git's name for them."""
    original = hub.answer

    def answer(asked: Any) -> Any:
        found = original(asked)
        return found._replace(content=b"# FACES") if found.is_file and asked.path.endswith("README.md") else found

    hub.answer = answer  # type: ignore[method-assign]
    error = machine.refuse("hf://datasets/me/faces", HF_ENDPOINT=hub.url, HF_TOKEN="hf_hunter2")
    assert "README.md has the wrong checksum" in str(error)


def test_a_later_commit_is_not_mixed_with_an_earlier_attempt(machine: Machine, hub: Hub) -> None:
    """Files of the same size would otherwise be taken for what is wanted."""
    hub.claims["x.txt"] = 1
    machine.refuse("hf://datasets/me/faces", HF_ENDPOINT=hub.url, HF_TOKEN="hf_hunter2")
    hub.claims.clear()
    hub.commit, hub.files["data/b.txt"] = "d" * 40, b"B"
    folder = machine.fetch("hf://datasets/me/faces", HF_ENDPOINT=hub.url, HF_TOKEN="hf_hunter2")
    assert files_below(folder) == {**FACES, "data/b.txt": b"B"}


def test_a_repository_larger_than_the_disk_is_refused_before_a_file_is_fetched(machine: Machine, hub: Hub) -> None:
    """Its tree tells."""
    hub.claims["data/a.bin"] = 10**16
    error = machine.refuse("hf://datasets/me/faces", HF_ENDPOINT=hub.url, HF_TOKEN="hf_hunter2")
    assert "doesn't fit on the disk" in str(error)
    assert not [asked for asked in hub.asked if "/resolve/" in asked.path]


@pytest.mark.parametrize("token", ["hf_hunter2\nhf_hunter2", "hf_hunter2\x1b[2J", "hf_hunter2\u200b"])
def test_a_token_that_cannot_be_sent_is_not_told(machine: Machine, hub: Hub, token: str) -> None:
    """Python's own error would show it, in the run's log: the secret is named instead."""
    error = machine.refuse("hf://datasets/me/faces", HF_ENDPOINT=hub.url, HF_TOKEN=token)
    assert "hunter2" not in str(error)
    assert "HF_TOKEN" in str(error)


def test_a_token_with_the_end_of_its_file_is_taken(machine: Machine, hub: Hub) -> None:
    """As the Hub's own tools do."""
    folder = machine.fetch("hf://datasets/me/faces", HF_ENDPOINT=hub.url, HF_TOKEN="hf_hunter2\n")
    assert files_below(folder) == FACES
