"""Addresses under `data`: the forms that are accepted, and the refusal of all others."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from orchestrator.core.errors import BadRequestError
from orchestrator.core.job import DataMount, Job

DIGEST = "ab" * 32


@pytest.mark.parametrize(
    "address",
    [
        "s3://bucket/sets/faces/",
        "s3://bucket",
        "s3://my.bucket-1/one.tar?region=eu-west-3",
        "https://host.example/a.bin",
        f"https://host.example:8443/a.tar.gz?signature=x#sha256={DIGEST}&unpack",
        "https://host.example/a.zip#unpack",
        "http://127.0.0.1:8000/a.bin",
        "http://localhost/a.bin",
        f"git+https://host.example/me/faces.git@{'a' * 40}",
        "git+https://host.example/me/faces@v1.0",
        "hf://me/model",
        "hf://datasets/me/faces@refs%2Fconvert%2Fparquet/default/train",
        "kaggle://competitions/titanic",
        "kaggle://datasets/me/faces@7",
    ],
)
def test_an_address_that_machines_can_fetch_is_kept_as_written(read: Callable[..., Job], address: str) -> None:
    """In a mapping, in a list, and under SkyPilot's `file_mounts`."""
    expected = (DataMount(source=address, target="set"),)
    assert expected[0].is_fetched
    assert read(f"data:\n  set: '{address}'\n").data == expected
    assert read(f"data: [{{source: '{address}', target: ./set/}}]\n").data == expected
    assert read(f"file_mounts:\n  set: '{address}'\n").data == expected


def test_the_target_may_be_within_a_volume(read: Callable[..., Job]) -> None:
    """Machines then fetch it once, to the volume."""
    job = read("volumes: {disk: {name: sets, size: 9}}\ndata: {disk/a/faces: 'hf://me/model', other: 's3://bucket/c/'}")
    assert {mount.target: job.is_on_volume(mount) for mount in job.data} == {"disk/a/faces": True, "other": False}


def test_a_variable_is_put_into_an_address(read: Callable[..., Job]) -> None:
    """The scheme may be in upper case."""
    assert read("envs: {V: v2}\ndata: {set: 'HF://me/model@$V'}").data[0].source == "hf://me/model@v2"


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("gs://bucket/x", "gs://"),
        ("ftp://host/x", "ftp://"),
        ("git+ssh://git@host/x@v1", "git+ssh://"),
        ("http://host.example/x", "not encrypted"),
        ("git+http://host.example/x@v1", "not encrypted"),
        ("https://me:hunter2@host.example/x", "password in it"),
        ("git+https://hunter2@host.example/x@v1", "password in it"),
        ("https:///x", "https://host/path"),
        ("https://[/x", "not a valid address"),
        ("https://host/x#sha256=abc", "64 hex digits"),
        ("https://host/x#unzip", "#unpack"),
        ("s3://Bucket/x", "s3://bucket/prefix/"),
        ("s3://bucket/x?versionId=1", "s3://bucket/prefix/"),
        ("git+https://host/x", "full commit or a tag"),
        ("git+https://host/x@", "full commit or a tag"),
        ("git+https://host/x@--upload-pack=evil", "full commit or a tag"),
        ("hf://model", "hf://OWNER/NAME"),
        ("hf://datasets/faces", "hf://OWNER/NAME"),
        ("hf://spaces/me/app", "hf://OWNER/NAME"),
        ("kaggle://titanic", "kaggle://competitions/NAME"),
        ("kaggle://datasets/me", "kaggle://competitions/NAME"),
    ],
)
def test_an_address_of_another_form_is_refused(refuse: Callable[..., BadRequestError], address: str, says: str) -> None:
    """The error names the line, the key and the right form, and shows nothing that may be a secret."""
    error = refuse(f"run: x\ndata:\n  set: '{address}'\n")
    assert ":3: `data.set`" in error.what
    assert says in str(error)
    assert error.fix
    assert "hunter2" not in str(error)


def test_code_is_not_fetched_from_an_address(refuse: Callable[..., BadRequestError]) -> None:
    """The working folder has to be on this computer."""
    assert "under `data`" in str(refuse("workdir: https://host/x"))
