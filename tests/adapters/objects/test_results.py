"""An object store, of either kind, gives back what was shipped: verified, and nowhere else."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from orchestrator.adapters.store.folder import FolderBucket
from orchestrator.adapters.store.results import Results
from orchestrator.core.errors import BadRequestError, KedgeError
from orchestrator.core.protocol.report import RunState
from tests.adapters.objects.shelves import MTIME, RUN, FolderShelf, Shelf, blob_key, fetch, files_below, ship


def test_a_run_that_shipped_nothing_has_no_results(shelf: Shelf, tmp_path: Path) -> None:
    """No manifest is no error: there is nothing to list, no state, and nothing to copy."""
    assert shelf.store.manifest(RUN) == ()
    assert shelf.store.last_upload(RUN) is None
    assert fetch(shelf, tmp_path / "here") == []


def test_the_url_names_the_folder(tmp_path: Path) -> None:
    """Odd characters are escaped as in every URL."""
    assert Results(FolderBucket(tmp_path / "a b")).url == (tmp_path / "a b").as_uri()


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
    """To a file or to a folder; one that would lead out of the results is left out, and named."""
    ship(shelf, {"output/runs/1/a.txt": b"a", "output/latest": b"", "output/out": b""})
    manifest = json.loads(shelf.read("manifest.json"))
    manifest["files"][1]["link"], manifest["files"][2]["link"] = "runs/1", "../../secret"
    shelf.put("manifest.json", json.dumps(manifest).encode())
    arrival = shelf.store.fetch(RUN, str(tmp_path / "here"), lambda _done, _total: None)
    assert arrival.left_out.keys() == {"output/out"}
    assert (tmp_path / "here" / "output" / "latest" / "a.txt").read_bytes() == b"a"
    assert (tmp_path / "here" / "output" / "latest").is_symlink()
    assert not (tmp_path / "here" / "output" / "out").is_symlink()


def test_the_state_of_the_command_is_what_was_shipped_last(shelf: Shelf, tmp_path: Path) -> None:
    """A run whose machine is gone can still say how it ended."""
    ship(shelf, {}, command={"state": "succeeded", "attempt": 2, "exit_code": 0, "reason": "done"})
    last = shelf.store.last_upload(RUN)
    assert last is not None
    state = last.command
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
    with pytest.raises(KedgeError, match="not a checksum"):
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
    assert shelf.store.read_file(RUN, "run.log") == "fünf\n".encode()
    assert shelf.store.read_file(RUN, "nothing.log") == b""
    last = shelf.store.last_upload(RUN)
    assert last is not None
    assert last.at.timestamp() == MTIME


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


def rewrite(shelf: Shelf, *rows: Mapping[str, object]) -> None:
    """Change a manifest's rows, one after the other."""
    manifest = json.loads(shelf.read("manifest.json"))
    manifest["files"] = [{**old, **new} for old, new in zip(manifest["files"], rows, strict=True)]
    shelf.put("manifest.json", json.dumps(manifest).encode())


@pytest.mark.parametrize(
    "links",
    [
        {"d1/d2/a": "n/../..", "d1/d2/n": "../.."},
        {"a/b/x": "../..", "a/b/x/l": "../../.."},
        {"x": "/etc"},
    ],
    ids=["two steps", "below a link", "absolute"],
)
def test_no_link_that_comes_home_leaves_the_results(shelf: Shelf, tmp_path: Path, links: dict[str, str]) -> None:
    """By way of others neither, whatever order they are made in, in one fetch or in two."""
    here = tmp_path / "results"
    for some in (dict(list(links.items())[:1]), links, dict(reversed(links.items()))):
        ship(shelf, {"good": b"fine", **dict.fromkeys(some, b"")})
        rewrite(shelf, {}, *({"link": target} for target in some.values()))
        arrival = shelf.store.fetch(RUN, str(here), lambda _done, _total: None)
        assert not arrival.left_out.keys() - links.keys()
    assert arrival.left_out
    assert [path for path in here.rglob("*") if not path.resolve().is_relative_to(here)] == []
    assert (here / "good").read_bytes() == b"fine"


@pytest.mark.parametrize("size", [5, 0])
def test_an_object_larger_than_it_says_is_cut_off(tmp_path: Path, size: int) -> None:
    """It can't fill the laptop's disk: no more is written than the manifest has promised."""
    shelf = FolderShelf(tmp_path / "store")
    ship(shelf, {"bomb": b"small", "good": b"fine"})
    rewrite(shelf, {"bytes": size}, {})
    with (tmp_path / "store" / RUN / blob_key(b"small")).open("wb") as blob:
        blob.truncate(4 << 30)
    began = time.monotonic()
    with pytest.raises(KedgeError, match="1 of 2"):
        fetch(shelf, tmp_path / "here")
    assert files_below(tmp_path / "here") == {"good": b"fine"}
    assert time.monotonic() - began < 10


def test_more_than_the_disk_holds_is_refused_before_anything_is_copied(shelf: Shelf, tmp_path: Path) -> None:
    """A machine may say anything of the size of its results."""
    ship(shelf, {"bomb": b"evil", "good": b"fine"})
    rewrite(shelf, {"bytes": 1 << 60}, {})
    with pytest.raises(KedgeError, match="room"):
        fetch(shelf, tmp_path / "here")
    assert files_below(tmp_path / "here") == {}


def test_a_large_file_at_home_makes_no_room_for_another(shelf: Shelf, tmp_path: Path) -> None:
    """Of what is at home already counts no more than is listed of it."""
    ship(shelf, {"bomb": b"evil", "good": b"fine"})
    rewrite(shelf, {"bytes": 1 << 42}, {})
    (tmp_path / "here").mkdir()
    with (tmp_path / "here" / "good").open("wb") as there:
        there.truncate(1 << 42)
    with pytest.raises(KedgeError, match="room"):
        fetch(shelf, tmp_path / "here")


@pytest.mark.parametrize(
    "damage", [{"mtime": 1e300}, {"mtime": -1e300}, {"bytes": -5}, {"path": "a" * 5000}, {"path": "b/" * 3000 + "c"}]
)
def test_an_entry_that_cannot_be_costs_that_file_alone(shelf: Shelf, tmp_path: Path, damage: dict[str, object]) -> None:
    """It is named; the others are copied."""
    ship(shelf, {"bad": b"evil", "good": b"fine"})
    rewrite(shelf, damage, {})
    with pytest.raises(KedgeError, match="1 of 2"):
        fetch(shelf, tmp_path / "here")
    assert files_below(tmp_path / "here") == {"good": b"fine"}


def test_a_manifest_larger_than_any_is_not_read(tmp_path: Path) -> None:
    """Whoever may write to the store can't fill the laptop's memory."""
    shelf = FolderShelf(tmp_path / "store")
    ship(shelf, {"run.log": b"x"})
    with (tmp_path / "store" / RUN / "manifest.json").open("r+b") as stream:
        stream.truncate(8 << 30)
    with pytest.raises(KedgeError, match="longer"):
        shelf.store.read_file(RUN, "run.log")
