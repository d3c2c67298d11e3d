"""The whole path of a data set: a folder on the laptop, the bucket, and a folder on the machine."""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

from orchestrator.adapters.host.clock import SystemClock
from orchestrator.adapters.sync.data.push import DataSets
from orchestrator.agent.data.mirror import mirror_data_set
from orchestrator.agent.s3.bucket import S3Store
from orchestrator.agent.s3.client import Client, parse_s3_url
from tests.adapters.buckets import bucket_of, laptop_client
from tests.agent.aws import Aws

NAME = "digits"


class Later(SystemClock):
    """A clock that is ahead, so that no file counts as recently changed."""

    ahead = timedelta(hours=1)

    def now(self) -> datetime:
        return super().now() + self.ahead


class Lab:
    def __init__(self, aws: Aws, folder: Path) -> None:
        self.aws = aws
        self.client = laptop_client(aws)
        self.source = folder / "my 'data'"
        self.source.mkdir()
        self.target = folder / "machine" / "data" / "digits"
        self.state = folder / "state"
        self.clock = Later()

    def write(self, path: str | bytes, content: bytes) -> Path:
        place = self.source / os.fsdecode(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
        return place

    def push(
        self,
        *,
        delete: bool = False,
        state: Path | None = None,
        source: Path | None = None,
        places: Sequence[str] = (),
    ) -> int:
        """Upload the folder; return the bytes of the uploaded shards."""
        before = len(self.aws.gate.asked)
        self.steps = Steps()
        self.data(state).put(str(source or self.source), self.steps.add, name=NAME, places=places, delete=delete)
        sent = [
            headers for method, path, headers in self.aws.gate.asked[before:] if method == "PUT" and "shards" in path
        ]
        return sum(int(headers["content-length"]) for headers in sent)

    def data(self, state: Path | None = None) -> DataSets:
        """Make the laptop's side, with shards of 64 KB, so that tests with many shards are fast."""
        return DataSets(
            bucket_of(self.client, self.aws.bucket, "data"),
            memory=state or self.state,
            clock=self.clock,
            shard_bytes=64_000,
        )

    def pin(self) -> str:
        """Return the SHA-256 of the index in the bucket, as the laptop sends it to the machine."""
        return hashlib.sha256(self.aws.read(f"data/{NAME}/index.json.gz") or b"").hexdigest()

    def pull(self, pin: str = "") -> int:
        """Mirror the data set in the bucket, or the pinned one, on the machine; return the downloaded bytes."""
        client = Client(parse_s3_url(self.aws.store_url), retry_seconds=2)
        steps = Steps()
        try:
            mirror_data_set(S3Store(client, f"data/{NAME}"), self.target, steps.add, pin=pin or self.pin())
        finally:
            client.close()
        return steps.rows[-1][0] if steps.rows else 0

    def shards(self) -> list[str]:
        return self.aws.keys(f"data/{NAME}/shards/")


class Steps:
    def __init__(self) -> None:
        self.rows: list[tuple[int, int]] = []

    def add(self, done: int, total: int) -> None:
        self.rows.append((done, total))


Picture = dict[str, tuple[str, object, int, int]]


def picture(root: Path) -> Picture:
    """Map every path to its kind, content, mode and time. Only empty folders are included."""
    paths = [path for path in root.rglob("*") if path.relative_to(root).parts[0] != ".kedge"]
    found = {str(path.relative_to(root)): _describe(path) for path in paths}
    return {name: seen for name, seen in found.items() if seen is not None}


def _describe(path: Path) -> tuple[str, object, int, int] | None:
    if path.is_symlink():
        return "link", str(path.readlink()), 0, 0
    if path.is_dir():
        return None if any(path.iterdir()) else ("folder", b"", 0, 0)
    status = path.stat()
    return "file", path.read_bytes(), status.st_mode & 0o777, status.st_mtime_ns


def noise(size: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(size)
