"""An object store, of either kind, gives back what was shipped: verified, and nowhere else."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest

from orchestrator.adapters.objects import FolderStore
from orchestrator.core.errors import BadRequestError, KedgeError
from orchestrator.core.report import RunState
from tests.adapters.objects.shelves import MTIME, RUN, Shelf, blob_key, fetch, files_below, ship


def test_a_run_that_shipped_nothing_has_no_results(shelf: Shelf, tmp_path: Path) -> None:
    """No manifest is no error: there is nothing to list, no state, and nothing to copy."""
    assert shelf.store.manifest(RUN) == ()
    assert shelf.store.command(RUN) is None
    assert fetch(shelf, tmp_path / "here") == []


def test_the_url_names_the_folder(tmp_path: Path) -> None:
    """Odd characters are escaped as in every URL."""
    assert FolderStore(tmp_path / "a b").url == (tmp_path / "a b").as_uri()


def test_shipped_results_come_back_whole(shelf: Shelf, tmp_path: Path) -> None:
    """Contents, folders and times of change are those that were shipped; progress counts bytes."""
    files = {"metrics.jsonl": b"{}\n", "deep/er/modèl 1.onnx": b"\0" * 5000, "empty": b""}
    ship(shelf, files)
    steps = fetch(shelf, tmp_path / "here")
    assert files_below(tmp_path / "here") == files
    assert (tmp_path / "here" / "metrics.jsonl").stat().st_mtime == MTIME
    assert steps[-1] == (5003, 5003)
    assert {file.path for file in shelf.store.manifest(RUN)} == set(files)


def test_links_among_the_results_come_back_as_links(shelf: Shelf, tmp_path: Path) -> None:
    """To a file or to a folder; one that would lead out of the results is refused, and the others are copied."""
    ship(shelf, {"output/runs/1/a.txt": b"a", "output/latest": b"", "output/out": b""})
    manifest = json.loads(shelf.read("manifest.json"))
    manifest["files"][1]["link"], manifest["files"][2]["link"] = "runs/1", "../../secret"
    shelf.put("manifest.json", json.dumps(manifest).encode())
    with pytest.raises(KedgeError, match="1 of 3"):
        fetch(shelf, tmp_path / "here")
    assert (tmp_path / "here" / "output" / "latest" / "a.txt").read_bytes() == b"a"
    assert (tmp_path / "here" / "output" / "latest").is_symlink()
    assert not (tmp_path / "here" / "output" / "out").is_symlink()


def test_the_state_of_the_command_is_what_was_shipped_last(shelf: Shelf, tmp_path: Path) -> None:
    """A run whose machine is gone can still say how it ended."""
    ship(shelf, {}, command={"state": "succeeded", "attempt": 2, "exit_code": 0, "reason": "done"})
    state = shelf.store.command(RUN)
    assert state is not None
    assert (state.state, state.attempt, state.exit_code) == (RunState.SUCCEEDED, 2, 0)


def test_what_is_there_already_is_not_copied_again(shelf: Shelf, tmp_path: Path) -> None:
    """The same content stays the same file; other content is replaced, unless it is newer than what was shipped."""
    ship(shelf, {"same": b"same", "other": b"right", "newer": b"older"})
    here = tmp_path / "here"
    here.mkdir()
    (here / "same").write_bytes(b"same")
    (here / "other").write_bytes(b"wrong")
    os.utime(here / "other", (MTIME - 10, MTIME - 10))
    (here / "newer").write_bytes(b"newer")
    before = (here / "same").stat().st_ino
    fetch(shelf, here)
    assert (here / "same").stat().st_ino == before
    assert (here / "other").read_bytes() == b"right"
    assert (here / "newer").read_bytes() == b"newer"


@pytest.mark.parametrize("damage", ["missing", "changed", "cut short"])
def test_a_damaged_blob_is_named_and_the_others_are_copied(shelf: Shelf, tmp_path: Path, damage: str) -> None:
    """One broken file costs that file alone, and nothing broken ever stands under a result's name."""
    ship(shelf, {"bad.pt": b"weights", "good.pt": b"fine"})
    if damage == "missing":
        shelf.delete(blob_key(b"weights"))
    else:
        shelf.put(blob_key(b"weights"), b"wEights" if damage == "changed" else b"wei")
    with pytest.raises(KedgeError, match=r"bad\.pt"):
        fetch(shelf, tmp_path / "here")
    assert files_below(tmp_path / "here") == {"good.pt": b"fine"}


@pytest.mark.parametrize("path", ["../out", "/tmp/kedge-test-out", "a/../../out", "", ".", "link/out", "a\0b"])
def test_a_path_that_leads_elsewhere_is_refused(shelf: Shelf, tmp_path: Path, path: str) -> None:
    """A manifest comes from a machine: it can't write outside the folder, through a link neither."""
    ship(shelf, {path: b"evil", "good": b"fine"})
    here = tmp_path / "here"
    here.mkdir()
    (tmp_path / "elsewhere").mkdir()
    (here / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(KedgeError, match="1 of 2"):
        fetch(shelf, here)
    assert files_below(here) == {"good": b"fine"}
    assert not list((tmp_path / "elsewhere").iterdir())
    assert not (tmp_path / "out").exists()
    assert not Path("/tmp/kedge-test-out").exists()


def test_a_checksum_that_is_a_path_is_refused(shelf: Shelf, tmp_path: Path) -> None:
    """The name of a blob can't reach other files of the laptop's."""
    (tmp_path / "secret").write_bytes(b"secret")
    ship(shelf, {"loot": b"secret"})
    digest = hashlib.sha256(b"secret").hexdigest().encode()
    shelf.put("manifest.json", shelf.read("manifest.json").replace(digest, str(tmp_path / "secret").encode()))
    with pytest.raises(KedgeError, match="no checksum"):
        fetch(shelf, tmp_path / "here")
    assert not (tmp_path / "here" / "loot").exists()


def test_a_result_that_is_a_link_here_is_replaced_not_followed(shelf: Shelf, tmp_path: Path) -> None:
    """The file that the link names keeps its content."""
    ship(shelf, {"result": b"new"})
    (tmp_path / "mine").write_bytes(b"mine")
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "result").symlink_to(tmp_path / "mine")
    fetch(shelf, tmp_path / "here")
    assert (tmp_path / "mine").read_bytes() == b"mine"
    assert (tmp_path / "here" / "result").read_bytes() == b"new"


def test_a_manifest_that_is_damaged_is_an_error(shelf: Shelf, tmp_path: Path) -> None:
    """It isn't taken for a run without results."""
    ship(shelf, {})
    shelf.put("manifest.json", b'{"files": [')
    with pytest.raises(KedgeError, match="can't be read"):
        shelf.store.manifest(RUN)


@pytest.mark.parametrize("run_id", ["", "..", "../x", "a/b", "/etc"])
def test_a_run_id_that_is_a_path_is_refused(shelf: Shelf, run_id: str) -> None:
    """It would name a folder outside the store."""
    with pytest.raises(BadRequestError):
        shelf.store.manifest(run_id)


def test_one_text_can_be_read_by_itself(shelf: Shelf) -> None:
    """The log of a run whose machine is gone; empty where it wasn't shipped."""
    ship(shelf, {"run.log": "fünf\n".encode()})
    assert shelf.store.read_text(RUN, "run.log") == "fünf\n"
    assert shelf.store.read_text(RUN, "nothing.log") == ""
    shipped_at = shelf.store.shipped_at(RUN)
    assert shipped_at is not None
    assert shipped_at.timestamp() == MTIME


def test_two_results_with_the_same_content_both_arrive(shelf: Shelf, tmp_path: Path) -> None:
    """They share a blob, and are copied at the same time."""
    files = {f"checkpoints/{number}.pt": b"the same" for number in range(20)}
    ship(shelf, files)
    fetch(shelf, tmp_path / "here")
    assert files_below(tmp_path / "here") == files


def test_a_result_in_the_place_of_unfinished_ones_is_refused(shelf: Shelf, tmp_path: Path) -> None:
    """What a later fetch goes on from can't be put there by a machine, nor be led elsewhere by a link of one."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / ".kedge-partial").symlink_to(tmp_path / "elsewhere")
    ship(shelf, {".kedge-partial/x": b"evil", "good": b"fine"})
    with pytest.raises(KedgeError, match="1 of 2"):
        fetch(shelf, tmp_path / "here")
    assert files_below(tmp_path / "here") == {"good": b"fine"}
    assert not list((tmp_path / "elsewhere").iterdir())


@pytest.mark.parametrize("link", ["results", "results/run-1"])
def test_nothing_is_fetched_through_a_link_in_the_destinations_place(shelf: Shelf, tmp_path: Path, link: str) -> None:
    """Whether the run's folder is one, or the folder around it."""
    ship(shelf, {"authorized_keys": b"a stranger's"})
    (tmp_path / "user").mkdir()
    (tmp_path / link).parent.mkdir(exist_ok=True)
    (tmp_path / link).symlink_to(tmp_path / "user")
    with pytest.raises(BadRequestError, match="is a link"):
        fetch(shelf, tmp_path / "results" / "run-1")
    assert list((tmp_path / "user").iterdir()) == []
