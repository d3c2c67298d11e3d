"""A data set in a machine's store, as the laptop uploads it."""

from __future__ import annotations

import gzip
import hashlib
import json
from pathlib import Path

from orchestrator.agent.s3.store import FolderStore
from tests.agent.sources.machine import files_below

ADDRESS = "kedge-data://pictures-1a2b"


def lay(store: FolderStore, files: dict[str, bytes], *, is_file: bool = False) -> None:
    """Write a data set as the laptop does."""
    rows = []
    for path, content in files.items():
        name = hashlib.sha256(content).hexdigest()
        store.write(f"shards/{name}", content)
        piece = {"shard": name, "offset": 0, "bytes": len(content), "sha256": name}
        rows.append({"path": path, "mode": 0o644, "mtime_ns": 1_700_000_000_000_000_000, "pieces": [piece]})
    index = {"format": 1, "is_file": is_file, "files": rows, "links": {}, "folders": [], "shards": {}}
    store.write("index.json.gz", gzip.compress(json.dumps(index).encode()))


def pin_of(index: bytes) -> str:
    return hashlib.sha256(index).hexdigest()


def seen(folder: Path) -> dict[str, bytes]:
    return {path: content for path, content in files_below(folder).items() if not path.startswith(".kedge/")}
