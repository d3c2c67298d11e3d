"""The folder that stands in as an object store gives back what was shipped: verified, and nowhere else."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest

from orchestrator.adapters.objects import FolderStore
from orchestrator.core.errors import BadRequestError, KedgeError
from orchestrator.core.report import RunState

RUN = "digits-1a2b"
MTIME = 1_700_000_000.5


@pytest.fixture
def store(tmp_path: Path) -> FolderStore:
    return FolderStore(tmp_path / "store")


def ship(tmp_path: Path, files: dict[str, bytes], **more: Any) -> Path:
    """Write a run as the agent does, and return its folder."""
    folder = tmp_path / "store" / RUN
    (folder / "blobs").mkdir(parents=True, exist_ok=True)
    rows = []
    for path, content in files.items():
        digest = hashlib.sha256(content).hexdigest()
        (folder / "blobs" / digest).write_bytes(content)
        rows.append({"path": path, "bytes": len(content), "sha256": digest, "mtime": MTIME})
    manifest = {"time": MTIME, "machine": f"{RUN}-m1", "checkpoint": "last.pt", "files": rows, **more}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    return folder


def fetch(store: FolderStore, destination: Path) -> list[tuple[int, int]]:
    steps: list[tuple[int, int]] = []
    store.fetch(RUN, str(destination), lambda done, total: steps.append((done, total)))
    return steps


def files_below(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_run_that_shipped_nothing_has_no_results(store: FolderStore, tmp_path: Path) -> None:
    """No manifest is no error: there is nothing to list, no state, and nothing to copy."""
    assert store.manifest(RUN) == ()
    assert store.command(RUN) is None
    assert fetch(store, tmp_path / "here") == []


def test_the_url_names_the_folder(tmp_path: Path) -> None:
    """Odd characters are escaped as in every URL."""
    assert FolderStore(tmp_path / "a b").url == (tmp_path / "a b").as_uri()


def test_shipped_results_come_back_whole(store: FolderStore, tmp_path: Path) -> None:
    """Contents, folders and times of change are those that were shipped; progress counts bytes."""
    files = {"metrics.jsonl": b"{}\n", "deep/er/modèl 1.onnx": b"\0" * 5000, "empty": b""}
    ship(tmp_path, files)
    steps = fetch(store, tmp_path / "here")
    assert files_below(tmp_path / "here") == files
    assert (tmp_path / "here" / "metrics.jsonl").stat().st_mtime == MTIME
    assert steps[-1] == (5003, 5003)
    assert {file.path for file in store.manifest(RUN)} == set(files)


def test_links_among_the_results_come_back_as_links(store: FolderStore, tmp_path: Path) -> None:
    """To a file or to a folder; one that would lead out of the results is refused, and the others are copied."""
    folder = ship(tmp_path, {"output/runs/1/a.txt": b"a", "output/latest": b"", "output/out": b""})
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"][1]["link"], manifest["files"][2]["link"] = "runs/1", "../../secret"
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(KedgeError, match="1 of 3"):
        fetch(store, tmp_path / "here")
    assert (tmp_path / "here" / "output" / "latest" / "a.txt").read_bytes() == b"a"
    assert (tmp_path / "here" / "output" / "latest").is_symlink()
    assert not (tmp_path / "here" / "output" / "out").is_symlink()


def test_the_state_of_the_command_is_what_was_shipped_last(store: FolderStore, tmp_path: Path) -> None:
    """A run whose machine is gone can still say how it ended."""
    ship(tmp_path, {}, command={"state": "succeeded", "attempt": 2, "exit_code": 0, "reason": "done"})
    state = store.command(RUN)
    assert state is not None
    assert (state.state, state.attempt, state.exit_code) == (RunState.SUCCEEDED, 2, 0)


def test_what_is_there_already_is_not_copied_again(store: FolderStore, tmp_path: Path) -> None:
    """The same content stays the same file; other content is replaced, unless it is newer than what was shipped."""
    ship(tmp_path, {"same": b"same", "other": b"right", "newer": b"older"})
    here = tmp_path / "here"
    here.mkdir()
    (here / "same").write_bytes(b"same")
    (here / "other").write_bytes(b"wrong")
    os.utime(here / "other", (MTIME - 10, MTIME - 10))
    (here / "newer").write_bytes(b"newer")
    before = (here / "same").stat().st_ino
    fetch(store, here)
    assert (here / "same").stat().st_ino == before
    assert (here / "other").read_bytes() == b"right"
    assert (here / "newer").read_bytes() == b"newer"


@pytest.mark.parametrize("damage", ["missing", "changed", "cut short"])
def test_a_damaged_blob_is_named_and_the_others_are_copied(store: FolderStore, tmp_path: Path, damage: str) -> None:
    """One broken file costs that file alone, and nothing broken ever stands under a result's name."""
    folder = ship(tmp_path, {"bad.pt": b"weights", "good.pt": b"fine"})
    blob = folder / "blobs" / hashlib.sha256(b"weights").hexdigest()
    if damage == "missing":
        blob.unlink()
    else:
        blob.write_bytes(b"wEights" if damage == "changed" else b"wei")
    with pytest.raises(KedgeError, match=r"bad\.pt"):
        fetch(store, tmp_path / "here")
    assert files_below(tmp_path / "here") == {"good.pt": b"fine"}


@pytest.mark.parametrize("path", ["../out", "/tmp/kedge-test-out", "a/../../out", "", ".", "link/out", "a\0b"])
def test_a_path_that_leads_elsewhere_is_refused(store: FolderStore, tmp_path: Path, path: str) -> None:
    """A manifest comes from a machine: it can't write outside the folder, through a link neither."""
    ship(tmp_path, {path: b"evil", "good": b"fine"})
    here = tmp_path / "here"
    here.mkdir()
    (tmp_path / "elsewhere").mkdir()
    (here / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(KedgeError, match="1 of 2"):
        fetch(store, here)
    assert files_below(here) == {"good": b"fine"}
    assert not list((tmp_path / "elsewhere").iterdir())
    assert not (tmp_path / "out").exists()
    assert not Path("/tmp/kedge-test-out").exists()


def test_a_checksum_that_is_a_path_is_refused(store: FolderStore, tmp_path: Path) -> None:
    """The name of a blob can't reach other files of the laptop's."""
    (tmp_path / "secret").write_bytes(b"secret")
    manifest = ship(tmp_path, {"loot": b"secret"}) / "manifest.json"
    digest = hashlib.sha256(b"secret").hexdigest()
    manifest.write_text(manifest.read_text().replace(digest, str(tmp_path / "secret")))
    with pytest.raises(KedgeError, match="no checksum"):
        fetch(store, tmp_path / "here")
    assert not (tmp_path / "here" / "loot").exists()


def test_a_result_that_is_a_link_here_is_replaced_not_followed(store: FolderStore, tmp_path: Path) -> None:
    """The file that the link names keeps its content."""
    ship(tmp_path, {"result": b"new"})
    (tmp_path / "mine").write_bytes(b"mine")
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "result").symlink_to(tmp_path / "mine")
    fetch(store, tmp_path / "here")
    assert (tmp_path / "mine").read_bytes() == b"mine"
    assert (tmp_path / "here" / "result").read_bytes() == b"new"


def test_a_manifest_that_is_damaged_is_an_error(store: FolderStore, tmp_path: Path) -> None:
    """It isn't taken for a run without results."""
    (ship(tmp_path, {}) / "manifest.json").write_text('{"files": [')
    with pytest.raises(KedgeError, match="can't be read"):
        store.manifest(RUN)


@pytest.mark.parametrize("run_id", ["", "..", "../x", "a/b", "/etc"])
def test_a_run_id_that_is_a_path_is_refused(store: FolderStore, run_id: str) -> None:
    """It would name a folder outside the store."""
    with pytest.raises(BadRequestError):
        store.manifest(run_id)
