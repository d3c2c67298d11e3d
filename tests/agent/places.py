"""Where machines upload results, seen from outside: a folder, or a prefix of a bucket."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Protocol

from orchestrator.agent.s3.imds import ENDPOINT_VARIABLE
from tests.agent.aws import Aws
from tests.agent.box import RUN


class Place(Protocol):
    """One store, at the prefix of the tests' run."""

    @property
    def url(self) -> str:
        """The URL that machines are given."""

    @property
    def env(self) -> dict[str, str]:
        """The environment that they need to reach it."""

    def read(self, key: str) -> bytes | None:
        """Read an object; None if there is none."""

    def write(self, key: str, content: bytes) -> None:
        """Write an object."""

    def blobs(self) -> set[str]:
        """List the blobs' names."""


class FolderPlace:
    def __init__(self, folder: Path) -> None:
        self.url = folder.as_uri()
        self.env: dict[str, str] = {}
        self._folder = folder / RUN

    def read(self, key: str) -> bytes | None:
        try:
            return (self._folder / key).read_bytes()
        except FileNotFoundError:
            return None

    def write(self, key: str, content: bytes) -> None:
        (self._folder / key).parent.mkdir(parents=True, exist_ok=True)
        (self._folder / key).write_bytes(content)

    def blobs(self) -> set[str]:
        return {path.name for path in (self._folder / "blobs").iterdir()}


class S3Place:
    def __init__(self, aws: Aws) -> None:
        self.url = aws.store_url
        self.env = {ENDPOINT_VARIABLE: aws.imds.url}
        self._aws = aws

    def read(self, key: str) -> bytes | None:
        return self._aws.read(f"runs/{RUN}/{key}")

    def write(self, key: str, content: bytes) -> None:
        self._aws.write(f"runs/{RUN}/{key}", content)

    def blobs(self) -> set[str]:
        return {key.rpartition("/")[2] for key in self._aws.keys(f"runs/{RUN}/blobs/")}


def manifest_of(store: Place) -> dict[str, Any]:
    """Return the uploaded manifest; empty if nothing was uploaded."""
    return dict(json.loads(store.read("manifest.json") or b"{}"))


def uploaded(store: Place) -> dict[str, bytes]:
    """Map the manifest's files to the contents of their blobs, without those that were replaced meanwhile."""
    found = {file["path"]: store.read(f"blobs/{file['sha256']}") for file in manifest_of(store).get("files", ())}
    return {path: content for path, content in found.items() if content is not None}
