"""The machine mirrors a data set that the laptop has uploaded to the machine's own store."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.agent.s3.store import FolderStore
from tests.agent.sources.data_sets import ADDRESS, lay, pin_of, seen
from tests.agent.sources.machine import Machine


@pytest.fixture
def store(machine: Machine, tmp_path: Path) -> FolderStore:
    """The data set's prefix in the machine's store."""
    machine.store_url = (tmp_path / "store").as_uri()
    return FolderStore(tmp_path / "store" / "data" / "pictures-1a2b")


def fetch(machine: Machine, target: str = "data/set") -> Path:
    """Fetch it with the pin that the laptop computes for its index; None if there is none."""
    index = store_folder(machine) / "index.json.gz"
    return machine.fetch(ADDRESS, target, index=pin_of(index.read_bytes()) if index.exists() else "")


def test_a_folder_is_mirrored_once(machine: Machine, store: FolderStore, capfd: pytest.CaptureFixture[str]) -> None:
    """The log says how large it was; later changes in the store arrive only after `sync-data`."""
    lay(store, {"a/b.png": b"content", "c.png": b"more"})
    assert seen(fetch(machine)) == {"a/b.png": b"content", "c.png": b"more"}
    record = {"source": ADDRESS, "target": "data/set", "files": 2, "bytes": 11}
    assert machine.record() == {**record, "version": pin_of((store_folder(machine) / "index.json.gz").read_bytes())}
    assert "data/set is complete: 2 files" in capfd.readouterr().out
    lay(store, {"a/b.png": b"changed"})
    assert seen(fetch(machine)) == {"a/b.png": b"content", "c.png": b"more"}


def test_a_single_file_lies_at_the_target(machine: Machine, store: FolderStore) -> None:
    """Its name on the laptop doesn't matter."""
    lay(store, {"labels.csv": b"cat,dog"}, is_file=True)
    assert fetch(machine, "names.csv").read_bytes() == b"cat,dog"


def test_files_that_are_already_there_are_not_fetched_again(machine: Machine, store: FolderStore) -> None:
    """A machine that lost its records, but not its data, downloads no shard."""
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


def test_a_missing_data_set_is_reported(machine: Machine, store: FolderStore) -> None:
    """The error says what to do; nothing is recorded as fetched."""
    assert "no such data set" in str(machine.refuse(ADDRESS))
    lay(store, {"a.png": b"content"})
    assert seen(fetch(machine)) == {"a.png": b"content"}
