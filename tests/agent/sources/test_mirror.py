"""A data set of the laptop's is mirrored from the machine's own store, in its place."""

from __future__ import annotations

import gzip
import hashlib
import json
from pathlib import Path

import pytest

from orchestrator.agent.s3.store import FolderStore
from tests.agent.sources.machine import Machine, files_below

ADDRESS = "kedge-data://pictures-1a2b"


@pytest.fixture
def store(machine: Machine, tmp_path: Path) -> FolderStore:
    """The place of the data set, in the store that the machine knows."""
    machine.store_url = (tmp_path / "store").as_uri()
    return FolderStore(tmp_path / "store" / "data" / "pictures-1a2b")


def lay(store: FolderStore, files: dict[str, bytes], *, is_file: bool = False) -> None:
    """Write a data set, as the laptop does."""
    rows = []
    for path, content in files.items():
        name = hashlib.sha256(content).hexdigest()
        store.write(f"shards/{name}", content)
        piece = {"shard": name, "offset": 0, "bytes": len(content), "sha256": name}
        rows.append({"path": path, "mode": 0o644, "mtime_ns": 1_700_000_000_000_000_000, "pieces": [piece]})
    index = {"format": 1, "is_file": is_file, "files": rows, "links": {}, "folders": [], "shards": {}}
    store.write("index.json.gz", gzip.compress(json.dumps(index).encode()))


def fetch(machine: Machine, target: str = "data/set") -> Path:
    """Fetch it with the pin that the laptop computes of what lies there, none for nothing."""
    index = store_folder(machine) / "index.json.gz"
    return machine.fetch(ADDRESS, target, index=pin_of(index.read_bytes()) if index.exists() else "")


def pin_of(index: bytes) -> str:
    return hashlib.sha256(index).hexdigest()


def seen(folder: Path) -> dict[str, bytes]:
    return {path: content for path, content in files_below(folder).items() if not path.startswith(".kedge/")}


def test_a_folder_is_mirrored_once(machine: Machine, store: FolderStore, capfd: pytest.CaptureFixture[str]) -> None:
    """The log says how much it was; what changes in the store later comes when `sync-data` says so."""
    lay(store, {"a/b.png": b"content", "c.png": b"more"})
    assert seen(fetch(machine)) == {"a/b.png": b"content", "c.png": b"more"}
    record = {"source": ADDRESS, "target": "data/set", "files": 2, "bytes": 11}
    assert machine.record() == {**record, "version": pin_of((store_folder(machine) / "index.json.gz").read_bytes())}
    assert "data/set is complete: 2 files" in capfd.readouterr().out
    lay(store, {"a/b.png": b"changed"})
    assert seen(fetch(machine)) == {"a/b.png": b"content", "c.png": b"more"}


def test_a_single_file_lies_at_the_target(machine: Machine, store: FolderStore) -> None:
    """Whatever it was called on the laptop."""
    lay(store, {"labels.csv": b"cat,dog"}, is_file=True)
    assert fetch(machine, "names.csv").read_bytes() == b"cat,dog"


def test_what_lies_there_already_is_not_fetched_again(machine: Machine, store: FolderStore) -> None:
    """A machine that has lost its memory, and not its data, needs no shard."""
    lay(store, {"a.png": b"content"})
    target = fetch(machine)
    [record] = (machine.layout.data / ".fetched").iterdir()
    record.unlink()
    for shard in (store_folder(machine) / "shards").iterdir():
        shard.unlink()
    assert seen(fetch(machine)) == {"a.png": b"content"}
    assert target.is_dir()


def store_folder(machine: Machine) -> Path:
    return Path(machine.store_url.removeprefix("file://")) / "data" / "pictures-1a2b"


def test_a_data_set_that_is_not_there_is_told(machine: Machine, store: FolderStore) -> None:
    """With what to do; nothing is remembered as fetched."""
    assert "no such data set" in str(machine.refuse(ADDRESS))
    lay(store, {"a.png": b"content"})
    assert seen(fetch(machine)) == {"a.png": b"content"}
