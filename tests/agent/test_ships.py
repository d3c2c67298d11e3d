"""When results are uploaded to the store, and which uploads count as complete."""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from orchestrator.agent.base import processes, state
from orchestrator.agent.base.files import read_json
from orchestrator.agent.base.layout import Layout
from orchestrator.agent.base.runlog import RunLog
from orchestrator.agent.base.state import RunState
from orchestrator.agent.base.wire import RUNNING, STOPPED, Command, MachineConfig
from orchestrator.agent.results import upload
from orchestrator.agent.results.complete import Version, versions
from orchestrator.agent.results.listing import scan
from orchestrator.agent.results.restore import restore
from orchestrator.agent.results.upload import Uploader, blob_key, read_manifest
from orchestrator.agent.s3.store import FolderStore
from orchestrator.agent.watch.upload_loop import UploadLoop
from tests.agent.uploads import during_upload, uploading_machine


def test_a_copy_that_began_before_the_end_is_not_the_last_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command ends during an upload, which is older than its end; the next one has the last files."""
    layout = Layout(tmp_path / "machine")
    task = layout.task("")
    checkpoints = layout.results / "checkpoints"
    checkpoints.mkdir(parents=True)
    (checkpoints / "10.pt").write_text("ten")
    (layout.results / "output").mkdir()
    (layout.results / "output" / "z").write_text("z")
    store = tmp_path / "store"
    now = time.time()
    machine = uploading_machine(layout, store)
    log = RunLog(lambda: task.log_file)
    restore(layout, machine, log)
    live = state.State(
        command=Command(state=RUNNING, attempt=1, since=now),
        runner=os.getpid(),
        runner_identity=processes.identify(os.getpid()),
    )
    state.save(task, live)
    loop = UploadLoop(layout, machine, log, last_upload=lambda: now + 3600, in_haste=lambda: True)

    with during_upload(loop, store, monkeypatch):
        (checkpoints / "20.pt").write_text("twenty")
        over = live.turned(STOPPED, reason="spot notice")
        state.save(task, over.replace(runner=0, runner_identity=""))
    assert 0 < read_json(layout.note("shipped"))["time"] < over.command.since
    loop.step()
    last = read_json(layout.note("shipped"))
    assert last["time"] >= over.command.since
    assert last["checkpoint"] == "20.pt"


class Results:
    """A machine's checkpoints, and their copies in its store."""

    def __init__(self, folder: Path) -> None:
        self.layout = Layout(folder / "machine")
        self.layout.prepare()
        self.layout.task("").prepare()
        self._store = FolderStore(folder / "store")
        machine = MachineConfig("digits-1a2b-m1", "digits-1a2b", "local", str(self.layout.root), 1.0, 2.0, "0")
        self._uploader = Uploader(self.layout, machine, self._store)

    def write(self, path: str, content: bytes) -> None:
        file = self.layout.task("").checkpoints / path
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(content)

    def versions(self) -> dict[str, Version]:
        """Return what is there, as if two scans had found it unchanged."""
        return versions(scan(self.layout.results))

    def ship(
        self, *complete: str, final: bool = False, seen: Mapping[str, Version] | None = None
    ) -> list[tuple[str, bytes | None]]:
        """Upload checkpoints that are complete, in the version that was seen, and return the store's content."""
        found = {unit: version for unit, version in (seen or self.versions()).items() if unit.endswith(complete)}
        self._uploader.upload(RunState(Command()), found, 1.0, final=final)
        rows = read_manifest(self._store)["files"]
        return [(row["path"], self._store.read(blob_key(row["sha256"]))) for row in rows]


def test_an_emptied_checkpoint_is_never_copied_over_a_whole_one(tmp_path: Path) -> None:
    """A command that is killed right after it opened its file leaves it empty, and the empty file no longer changes."""
    results = Results(tmp_path)
    results.write("ckpt.h5", b"weights")
    whole = results.ship("ckpt.h5")
    results.write("ckpt.h5", b"")
    assert results.ship("ckpt.h5") == whole == [("checkpoints/ckpt.h5", b"weights")]


@pytest.mark.parametrize("left", [b"\x80\x04half", b"half"], ids=["a pickle", "unknown"])
def test_a_checkpoint_that_changed_since_it_was_found_complete_is_not_uploaded(tmp_path: Path, left: bytes) -> None:
    """The command overwrites it in place between scan and upload; if it is killed then, the store has it whole."""
    results = Results(tmp_path)
    results.write("ckpt.bin", b"\x80\x04weights.")
    whole = results.ship("ckpt.bin")
    seen = results.versions()
    results.write("ckpt.bin", left)
    assert results.ship("ckpt.bin", seen=seen) == whole == [("checkpoints/ckpt.bin", b"\x80\x04weights.")]


def test_the_last_stored_checkpoint_stays_until_a_newer_one_is_complete(tmp_path: Path) -> None:
    """The command has deleted it for one that might still be written; then it deletes that one, too."""
    results = Results(tmp_path)
    results.write("step-1.bin", b"one")
    results.write("step-2.bin", b"two")
    results.ship("step-1.bin", "step-2.bin")
    results.write("step-3.bin", b"thr")
    for old in ("step-1.bin", "step-2.bin"):
        (results.layout.task("").checkpoints / old).unlink()
    assert results.ship("none") == [("checkpoints/step-2.bin", b"two")]
    assert results.ship("step-3.bin") == [("checkpoints/step-3.bin", b"thr")]
    (results.layout.task("").checkpoints / "step-3.bin").unlink()
    assert results.ship("none") == []


def test_a_checkpoint_that_is_deleted_during_its_upload_does_not_replace_the_last_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command has deleted the older one already, and writes the next."""
    results = Results(tmp_path)
    results.write("step-1.bin", b"one")
    results.ship("step-1.bin")
    (results.layout.task("").checkpoints / "step-1.bin").unlink()
    results.write("step-2.bin", b"two")
    put = FolderStore.put

    def put_too_late(self: FolderStore, key: str, chunks: Iterable[bytes]) -> None:
        (results.layout.task("").checkpoints / "step-2.bin").unlink()
        put(self, key, chunks)

    monkeypatch.setattr(FolderStore, "put", put_too_late)
    assert results.ship("step-2.bin") == [("checkpoints/step-1.bin", b"one")]


@pytest.mark.parametrize("left", [b"", b"\x80\x04half"])
def test_a_folder_with_one_truncated_file_is_not_uploaded(tmp_path: Path, left: bytes) -> None:
    """Its other files are of another step: none of them is mixed into the store's copy."""
    results = Results(tmp_path)
    results.write("last/model.bin", b"model 1")
    results.write("last/optimizer.pkl", pickle.dumps("optimizer 1"))
    whole = results.ship("last")
    results.write("last/model.bin", b"model 2")
    results.write("last/optimizer.pkl", left)
    assert results.ship(final=True) == whole
    assert len(whole) == 2


def test_a_folder_is_checked_for_truncated_files_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some libraries write thousands of files into one folder: the last upload must end before the deadline."""
    results = Results(tmp_path)
    for number in range(30):
        results.write(f"last/{number}", b"shard")
    results.ship("last")
    looked: list[Path] = []
    monkeypatch.setattr(upload, "is_sound", looked.append)
    results.ship(final=True)
    assert looked == [results.layout.task("").checkpoints / "last"]
