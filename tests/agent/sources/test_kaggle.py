"""Kaggle, through its own HTTP API."""

from __future__ import annotations

import base64
import os

import pytest

from tests.agent.sources.machine import Machine, files_below, zipped
from tests.agent.sources.web import Kaggle, Serve, Site

LARGE = os.urandom(3_000_000)
BASIC = f"Basic {base64.b64encode(b'me:hunter2').decode()}"


@pytest.mark.parametrize(
    ("address", "path", "secrets"),
    [
        (
            "kaggle://competitions/titanic",
            "/api/v1/competitions/data/download-all/titanic",
            {"KAGGLE_USERNAME": "me", "KAGGLE_KEY": "hunter2"},
        ),
        ("kaggle://datasets/me/faces", "/api/v1/datasets/download/me/faces", {"KAGGLE_API_TOKEN": "KGAT_x"}),
    ],
)
def test_kaggle_archives_are_unpacked_and_the_storage_host_gets_no_key(
    machine: Machine, serve: Serve, storage: Site, address: str, path: str, secrets: dict[str, str]
) -> None:
    """With a user's key or a token; an interrupted download is resumed."""
    kaggle = serve(Kaggle({path: zipped({"train/a.csv": LARGE})}, storage=storage, accepts=(BASIC, "Bearer KGAT_x")))
    storage.cuts = [2_000_000]
    assert files_below(machine.fetch(address, KAGGLE_API_ENDPOINT=kaggle.url, **secrets)) == {"train/a.csv": LARGE}
    assert storage.sent("authorization") == ["", ""]
    assert storage.sent("range") == ["", "bytes=2000000-"]


def test_a_version_of_a_data_set_is_asked_for_by_its_number(machine: Machine, serve: Serve, storage: Site) -> None:
    """A later version changes nothing."""
    files = {"/api/v1/datasets/download/me/faces": zipped({"a": b""})}
    kaggle = serve(Kaggle(files, storage=storage, accepts=(BASIC,)))
    secrets = {"KAGGLE_USERNAME": "me", "KAGGLE_KEY": "hunter2", "KAGGLE_API_ENDPOINT": kaggle.url}
    machine.fetch("kaggle://datasets/me/faces@7", **secrets)
    assert kaggle.asked[0].query == {"datasetVersionNumber": ["7"]}


def test_kaggle_s_refusals_say_what_to_do(machine: Machine, serve: Serve) -> None:
    """They name the secrets, or tell the user to accept the rules."""
    kaggle = serve(Kaggle(accepts=(BASIC,), has_rules=True))
    error = machine.refuse("kaggle://competitions/titanic", KAGGLE_API_ENDPOINT=kaggle.url)
    assert "KAGGLE_USERNAME and KAGGLE_KEY" in error.fix
    secrets = {"KAGGLE_USERNAME": "me", "KAGGLE_KEY": "hunter2", "KAGGLE_API_ENDPOINT": kaggle.url}
    error = machine.refuse("kaggle://competitions/titanic", **secrets)
    assert "You must accept" in error.why
    assert "https://www.kaggle.com/c/titanic/rules" in error.fix
