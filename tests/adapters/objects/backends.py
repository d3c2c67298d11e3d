"""Object stores of both kinds, with direct access to their objects."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Protocol

from orchestrator.adapters.store.folder import FolderBucket
from orchestrator.adapters.store.results import Results
from orchestrator.core.transfers import ResultStore
from tests.adapters.buckets import bucket_of, laptop_client
from tests.agent.aws import Aws

RUN = "digits-1a2b"
MTIME = 1_700_000_000.5


class Backend(Protocol):
    store: ResultStore

    def put(self, key: str, content: bytes) -> None:
        """Write an object of the run."""

    def read(self, key: str) -> bytes:
        """Read an object."""

    def delete(self, key: str) -> None:
        """Delete an object."""


class FolderBackend:
    def __init__(self, root: Path) -> None:
        self.store: ResultStore = Results(FolderBucket(root))
        self._folder = root / RUN

    def put(self, key: str, content: bytes) -> None:
        (self._folder / key).parent.mkdir(parents=True, exist_ok=True)
        (self._folder / key).write_bytes(content)

    def read(self, key: str) -> bytes:
        return (self._folder / key).read_bytes()

    def delete(self, key: str) -> None:
        (self._folder / key).unlink()


class S3Backend:
    def __init__(self, aws: Aws) -> None:
        self.store: ResultStore = Results(bucket_of(laptop_client(aws), aws.bucket))
        self._aws = aws

    def put(self, key: str, content: bytes) -> None:
        self._aws.write(f"runs/{RUN}/{key}", content)

    def read(self, key: str) -> bytes:
        return self._aws.read(f"runs/{RUN}/{key}") or b""

    def delete(self, key: str) -> None:
        self._aws.s3.delete_object(Bucket=self._aws.bucket, Key=f"runs/{RUN}/{key}")


def blob_key(content: bytes) -> str:
    return f"blobs/{hashlib.sha256(content).hexdigest()}"


def upload_run(backend: Backend, files: dict[str, bytes], *, place: str = "", **more: Any) -> None:
    """Upload a run's results and manifest, as the agent does; a machine after the head has a place of its own."""
    rows = []
    for path, content in files.items():
        backend.put(place + blob_key(content), content)
        sha256 = hashlib.sha256(content).hexdigest()
        rows.append({"path": path, "bytes": len(content), "sha256": sha256, "mtime": MTIME})
    manifest = {"time": MTIME, "machine": f"{RUN}-m1", "checkpoint": "last.pt", "files": rows, **more}
    backend.put(f"{place}manifest.json", json.dumps(manifest).encode())


def fetch(backend: Backend, destination: Path) -> list[tuple[int, int]]:
    steps: list[tuple[int, int]] = []
    backend.store.fetch(RUN, str(destination), lambda done, total: steps.append((done, total)))
    return steps


def files_below(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
