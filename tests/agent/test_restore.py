"""A machine restores from a store that others may have written to, and trusts nothing that it reads there."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.agent.base.errors import AgentError
from orchestrator.agent.base.layout import Layout
from orchestrator.agent.base.runlog import RunLog
from orchestrator.agent.base.wire import MachineConfig
from orchestrator.agent.results.attempt import read_attempt
from orchestrator.agent.results.restore import restore
from orchestrator.agent.s3.store import FolderStore
from tests.agent.places import FolderPlace

RUN = "digits-1a2b"
Rows = list[dict[str, Any]]


class Machine:
    """A new machine of a run, and the folder that is its store."""

    def __init__(self, root: Path) -> None:
        self.layout = Layout(root / "machine")
        self.layout.prepare()
        self.task = self.layout.task("")
        self.task.prepare()
        self.store = FolderPlace(root / "store")
        self.config = MachineConfig(
            machine=f"{RUN}-m2",
            run=RUN,
            provider="local",
            root=str(self.layout.root),
            created=time.time(),
            deadline_at=time.time() + 3600,
            usd_per_hour="0",
            store_url=(root / "store").as_uri(),
        )

    def ship(self, rows: Rows) -> None:
        self.store.write("manifest.json", json.dumps({"machine": f"{RUN}-m1", "files": rows}).encode())

    def file(self, path: str, content: bytes = b"evil", **more: Any) -> dict[str, Any]:
        sha256 = hashlib.sha256(content).hexdigest()
        self.store.write(f"blobs/{sha256}", content)
        return {"path": path, "bytes": len(content), "sha256": sha256, "mtime": 1_700_000_000.0, **more}

    def link(self, path: str, target: str) -> dict[str, Any]:
        return self.file(path, b"", link=target)

    def restore(self) -> str:
        """Restore; return what the run's log reports about it."""
        restore(self.layout, self.config, RunLog(lambda: self.task.log_file))
        return self.task.log_file.read_text() if self.task.log_file.exists() else ""

    def results(self) -> dict[str, bytes]:
        root = self.layout.results
        files = [path for path in root.rglob("*") if path.is_file() and path != self.task.log_file]
        return {str(path.relative_to(root)): path.read_bytes() for path in files}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.mark.parametrize(
    "links",
    [
        {"output/a": "/etc"},
        {"output/d1/d2/a": "n/../../../..", "output/d1/d2/n": "../.."},
        {"output/a": "../../../.."},
    ],
    ids=["absolute", "two steps", "up"],
)
def test_no_restored_link_leaves_the_results(machine: Machine, links: dict[str, str]) -> None:
    """Each is left out and named in the log; the files are there."""
    machine.ship([machine.file("output/good", b"fine"), *(machine.link(*row) for row in links.items())])
    log = machine.restore()
    inside = machine.layout.results.resolve()
    assert [path for path in inside.rglob("*") if not path.resolve().is_relative_to(inside)] == []
    assert machine.results() == {"output/good": b"fine"}
    assert "output/" in log
    assert "not restored" in log


def test_an_interrupted_restore_writes_nothing_through_the_links_that_it_made(machine: Machine) -> None:
    """The manifest has changed since: a name that was a link is now a folder."""
    elsewhere = machine.layout.root / "elsewhere"
    elsewhere.mkdir()
    (machine.layout.note("restored")).write_text('{"state": "begun"}')
    (machine.task.output / "a").symlink_to(elsewhere)
    machine.ship([machine.file("output/a/loot"), machine.file("output/good", b"fine")])
    assert "output/a/loot" in machine.restore()
    assert not list(elsewhere.iterdir())
    assert machine.results()["output/good"] == b"fine"


def test_no_file_is_restored_below_a_link(machine: Machine) -> None:
    """A link below another link would be resolved from a different folder than it says."""
    elsewhere = machine.layout.root / "elsewhere"
    elsewhere.mkdir()
    machine.ship([machine.link("output/b/c/x", "../.."), machine.link("output/b/c/x/l", "../../elsewhere")])
    machine.restore()
    assert [path for path in machine.layout.results.rglob("*") if path.resolve() == elsewhere] == []


@pytest.mark.parametrize("path", ["../out", "/tmp/kedge-test-out", "a/../../out", "", ".", "a\0b"])
def test_only_the_file_with_a_path_that_leads_elsewhere_is_lost(machine: Machine, path: str, tmp_path: Path) -> None:
    """The log names it; the checkpoints are restored anyway."""
    machine.ship([machine.file(path), machine.file("checkpoints/last.pt", b"weights")])
    assert "not restored" in machine.restore()
    assert machine.results() == {"checkpoints/last.pt": b"weights"}
    assert not (machine.layout.root / "out").exists()
    assert not Path("/tmp/kedge-test-out").exists()


@pytest.mark.parametrize(
    "damage",
    [
        {"mtime": 1e300},
        {"mtime": "now"},
        {"bytes": -1},
        {"bytes": 10**30},
        {"bytes": "many"},
        {"sha256": "../../../machine/machine.json"},
        {"sha256": None},
        {"path": None},
        {"link": 7},
    ],
    ids=str,
)
def test_only_the_file_of_an_invalid_entry_is_lost(machine: Machine, damage: dict[str, Any]) -> None:
    """Whatever is wrong with it, the run continues from the intact files."""
    machine.ship([{**machine.file("output/bad"), **damage}, machine.file("checkpoints/last.pt", b"weights")])
    assert "not restored" in machine.restore()
    assert machine.results()["checkpoints/last.pt"] == b"weights"
    assert "output/bad" not in machine.results()


@pytest.mark.parametrize("raw", [b"[]", b'{"files": 7}', b'{"files": [7]}', b"[" * 100_000], ids=repr)
def test_an_invalid_manifest_is_reported(machine: Machine, raw: bytes) -> None:
    """The run must not start from scratch because of it."""
    machine.store.write("manifest.json", raw[:200_000])
    with pytest.raises(AgentError, match="manifest"):
        machine.restore()


def test_an_object_larger_than_announced_is_cut_off(machine: Machine) -> None:
    """It can't fill the disk: no more is written than the manifest announced."""
    row = machine.file("output/bomb", b"")
    sha256 = hashlib.sha256(b"small").hexdigest()
    blob = Path(machine.store._folder) / "blobs" / sha256
    with blob.open("wb") as stream:
        os.truncate(stream.fileno(), 4 << 30)
    written: list[int] = []
    machine.ship([{**row, "bytes": 5, "sha256": sha256}])
    began = time.monotonic()
    assert "not restored" in machine.restore()
    written.append(sum(path.stat().st_size for path in machine.task.output.rglob("*")))
    assert written == [0]
    assert time.monotonic() - began < 10


def test_results_larger_than_the_disk_are_refused_before_anything_is_written(machine: Machine) -> None:
    """A manifest that announces more than there is room for."""
    machine.ship([machine.file("output/good", b"fine"), {**machine.file("output/bomb"), "bytes": 1 << 60}])
    assert "not restored" in machine.restore()
    assert machine.results() == {"output/good": b"fine"}


def test_the_checkpoint_kept_apart_is_fetched_once(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is as large as a checkpoint, and usually the same: a new machine doesn't download it twice."""
    paths = ("checkpoints/ckpt.pt", "checkpoints.kept/ckpt.pt")
    machine.ship([machine.file(path, b"weights") for path in paths])
    fetched: list[str] = []
    get = FolderStore.get

    def count(store: FolderStore, key: str) -> Iterator[bytes]:
        fetched.append(key)
        return get(store, key)

    monkeypatch.setattr(FolderStore, "get", count)
    machine.restore()
    assert machine.results() == dict.fromkeys(paths, b"weights")
    assert len(fetched) == 1


@pytest.mark.parametrize(
    ("manifest", "began"),
    [
        ({"checkpoint": "ckpt.pt", "command": {"started": 5.0}}, 5.0),
        ({"checkpoint": "", "command": {"started": 5.0}}, 0.0),
        ({"checkpoint": "ckpt.pt", "command": {"started": 5.0}, "attempt": {}}, 0.0),
        ({"checkpoint": "ckpt.pt", "command": "nonsense"}, 0.0),
    ],
)
def test_a_run_resumes_from_a_checkpoint_of_an_earlier_agent(
    machine: Machine, manifest: dict[str, Any], began: float
) -> None:
    """Its manifest records no attempts; still the next command is not told that it is the first."""
    content = {"machine": f"{RUN}-m1", "files": [machine.file("checkpoints/ckpt.pt")], **manifest}
    machine.store.write("manifest.json", json.dumps(content).encode())
    machine.restore()
    assert read_attempt(machine.task).began == began


def test_the_attempts_of_all_tasks_are_taken_over_also_of_those_that_do_not_start_now(machine: Machine) -> None:
    """One of an earlier mode, or one that is started alone later. Keys that name no folder are left out."""
    keys = ["voxel", "2-fast", "2-fast/voxel"]
    unfit = ["2-\0", "2-\ud800", f"2-{'x' * 300}", "../voxel", "2-fast/../..", ""]
    tasks = {key: {"attempt": {"began": 5.0}} for key in (*keys, *unfit)}
    machine.store.write("manifest.json", json.dumps({"files": [], "tasks": tasks}).encode())
    machine.restore()
    assert [read_attempt(machine.layout.task(key)).began for key in keys] == [5.0] * len(keys)
    assert read_attempt(machine.task).began == 0.0
    assert sorted(path.name for path in (machine.layout.root / "tasks").iterdir()) == ["2-fast", "voxel"]
