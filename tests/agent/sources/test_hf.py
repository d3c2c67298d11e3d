"""The Hugging Face Hub, through its own HTTP API."""

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


def test_a_data_set_of_the_hub_is_complete_and_the_token_goes_only_to_the_hub(
    machine: Machine, hub: Hub, storage: Site
) -> None:
    """All files on all pages of its tree are of one commit, and the other host never gets the token."""
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
    """It lies there without its parent folders."""
    assert files_below(machine.fetch(address, HF_ENDPOINT=hub.url, HF_TOKEN="hf_hunter2")) == expected


def test_a_single_file_of_a_model_is_the_target(machine: Machine, hub: Hub, storage: Site) -> None:
    """The file is in a folder; its download breaks off and is resumed from the other host."""
    hub.name = "me/model"
    storage.cuts = [1_000_000]
    fetched = machine.fetch("hf://me/model/data/a.bin", HF_ENDPOINT=hub.url, HF_TOKEN="hf_hunter2")
    assert fetched.read_bytes() == LARGE
    assert storage.sent("range") == ["", "bytes=1000000-"]


def test_a_private_repository_without_a_token_names_the_secret(machine: Machine, hub: Hub) -> None:
    """With a wrong token, the error says that it was refused."""
    error = machine.refuse("hf://datasets/me/faces", HF_ENDPOINT=hub.url)
    assert error.fix.startswith("name HF_TOKEN under `secrets`")
    error = machine.refuse("hf://datasets/me/faces", HF_ENDPOINT=hub.url, HF_TOKEN="hf_wrong")
    assert "check that HF_TOKEN is right" in error.fix
    assert "hf_wrong" not in str(error)


@pytest.mark.parametrize(
    "address", ["hf://datasets/me/faces@v9", "hf://datasets/me/other", "hf://datasets/me/faces/no"]
)
def test_what_the_hub_does_not_have_is_reported(machine: Machine, hub: Hub, address: str) -> None:
    """A missing revision, repository or path."""
    error = machine.refuse(address, HF_ENDPOINT=hub.url, HF_TOKEN="hf_hunter2")
    assert "correct the address" in error.fix


def test_content_that_differs_from_the_hubs_listing_is_refused(machine: Machine, hub: Hub, storage: Site) -> None:
    """Large files are checked by SHA-256, small ones by git's blob hash."""
    original = hub.answer

    def answer(asked: Any) -> Any:
        found = original(asked)
        return found._replace(content=b"# FACES") if found.is_file and asked.path.endswith("README.md") else found

    hub.answer = answer  # type: ignore[method-assign]
    error = machine.refuse("hf://datasets/me/faces", HF_ENDPOINT=hub.url, HF_TOKEN="hf_hunter2")
    assert "README.md has the wrong checksum" in str(error)


def test_a_later_commit_is_not_mixed_with_an_earlier_attempt(machine: Machine, hub: Hub) -> None:
    """Otherwise files of the same size would be taken for complete."""
    hub.claims["x.txt"] = 1
    machine.refuse("hf://datasets/me/faces", HF_ENDPOINT=hub.url, HF_TOKEN="hf_hunter2")
    hub.claims.clear()
    hub.commit, hub.files["data/b.txt"] = "d" * 40, b"B"
    folder = machine.fetch("hf://datasets/me/faces", HF_ENDPOINT=hub.url, HF_TOKEN="hf_hunter2")
    assert files_below(folder) == {**FACES, "data/b.txt": b"B"}


def test_a_repository_larger_than_the_disk_is_refused_before_a_file_is_fetched(machine: Machine, hub: Hub) -> None:
    """Its tree lists the sizes."""
    hub.claims["data/a.bin"] = 10**16
    error = machine.refuse("hf://datasets/me/faces", HF_ENDPOINT=hub.url, HF_TOKEN="hf_hunter2")
    assert "doesn't fit on the disk" in str(error)
    assert not [asked for asked in hub.asked if "/resolve/" in asked.path]


@pytest.mark.parametrize("token", ["hf_hunter2\nhf_hunter2", "hf_hunter2\x1b[2J", "hf_hunter2\u200b"])
def test_a_token_that_cannot_be_sent_is_not_shown(machine: Machine, hub: Hub, token: str) -> None:
    """Python's own error would show it in the run's log; ours names the secret instead."""
    error = machine.refuse("hf://datasets/me/faces", HF_ENDPOINT=hub.url, HF_TOKEN=token)
    assert "hunter2" not in str(error)
    assert "HF_TOKEN" in str(error)


def test_a_token_with_a_trailing_newline_is_accepted(machine: Machine, hub: Hub) -> None:
    """The Hub's own tools accept a trailing newline too."""
    folder = machine.fetch("hf://datasets/me/faces", HF_ENDPOINT=hub.url, HF_TOKEN="hf_hunter2\n")
    assert files_below(folder) == FACES
