"""Results from an object store of either kind: verified, and written only below the destination."""

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
from tests.adapters.objects.backends import MTIME, RUN, Backend, FolderBackend, blob_key, fetch, files_below, upload_run


def test_a_run_that_uploaded_nothing_has_no_results(backend: Backend, tmp_path: Path) -> None:
    """No manifest is no error: there are no files, no state, and nothing to copy."""
    assert backend.store.manifest(RUN) == ()
    assert backend.store.last_upload(RUN) is None
    assert fetch(backend, tmp_path / "here") == []


def test_the_url_names_the_folder(tmp_path: Path) -> None:
    """Special characters are escaped as in every URL."""
    assert Results(FolderBucket(tmp_path / "a b")).url == (tmp_path / "a b").as_uri()


def test_uploaded_results_come_back_complete(backend: Backend, tmp_path: Path) -> None:
    """Contents, folders and modification times are those that were uploaded; progress counts bytes."""
    files = {"metrics.jsonl": b"{}\n", "deep/er/modèl 1.onnx": b"\0" * 5000, "empty": b""}
    upload_run(backend, files)
    steps = fetch(backend, tmp_path / "here")
    assert files_below(tmp_path / "here") == files
    assert (tmp_path / "here" / "metrics.jsonl").stat().st_mtime == MTIME
    assert steps[-1] == (5003, 5003)
    assert {file.path for file in backend.store.manifest(RUN)} == set(files)


def test_links_among_the_results_come_back_as_links(backend: Backend, tmp_path: Path) -> None:
    """To a file or to a folder. A link that leads out of the results is left out and reported."""
    upload_run(backend, {"output/runs/1/a.txt": b"a", "output/latest": b"", "output/out": b""})
    manifest = json.loads(backend.read("manifest.json"))
    manifest["files"][1]["link"], manifest["files"][2]["link"] = "runs/1", "../../secret"
    backend.put("manifest.json", json.dumps(manifest).encode())
    arrival = backend.store.fetch(RUN, str(tmp_path / "here"), lambda _done, _total: None)
    assert arrival.left_out.keys() == {"output/out"}
    assert (tmp_path / "here" / "output" / "latest" / "a.txt").read_bytes() == b"a"
    assert (tmp_path / "here" / "output" / "latest").is_symlink()
    assert not (tmp_path / "here" / "output" / "out").is_symlink()


def test_the_state_of_the_command_is_the_last_that_was_uploaded(backend: Backend, tmp_path: Path) -> None:
    """So the end of a run is known although its machine is gone."""
    upload_run(backend, {}, command={"state": "succeeded", "attempt": 2, "exit_code": 0, "reason": "done"})
    last = backend.store.last_upload(RUN)
    assert last is not None
    state = last.command
    assert (state.state, state.attempt, state.exit_code) == (RunState.SUCCEEDED, 2, 0)


def test_files_that_are_there_already_are_not_copied_again(backend: Backend, tmp_path: Path) -> None:
    """An equal file stays. Another is replaced, unless it is newer than the uploaded one."""
    upload_run(backend, {"same": b"same", "other": b"right", "newer": b"older"})
    here = tmp_path / "here"
    here.mkdir()
    (here / "same").write_bytes(b"same")
    (here / "other").write_bytes(b"wrong")
    os.utime(here / "other", (MTIME - 10, MTIME - 10))
    (here / "newer").write_bytes(b"newer")
    before = (here / "same").stat().st_ino
    fetch(backend, here)
    assert (here / "same").stat().st_ino == before
    assert (here / "other").read_bytes() == b"right"
    assert (here / "newer").read_bytes() == b"newer"


@pytest.mark.parametrize("damage", ["missing", "changed", "cut short"])
def test_a_damaged_blob_is_named_and_the_others_are_copied(backend: Backend, tmp_path: Path, damage: str) -> None:
    """Only the damaged file is missing, and no damaged file ever gets a result's name."""
    upload_run(backend, {"bad.pt": b"weights", "good.pt": b"fine"})
    if damage == "missing":
        backend.delete(blob_key(b"weights"))
    else:
        backend.put(blob_key(b"weights"), b"wEights" if damage == "changed" else b"wei")
    with pytest.raises(KedgeError, match=r"bad\.pt"):
        fetch(backend, tmp_path / "here")
    assert files_below(tmp_path / "here") == {"good.pt": b"fine"}


def test_each_machine_of_a_run_has_its_own_list_and_contents(backend: Backend, tmp_path: Path) -> None:
    """Only the wanted paths come, and none leads out of the folder, whatever another machine's list says."""
    upload_run(backend, {"run.log": b"of the head"})
    upload_run(
        backend, {"run.log": b"another", "a": b"a", "../out": b"evil", "nodes/../../out": b"evil"}, place="nodes/1/"
    )
    names = [file.path for file in backend.store.manifest(RUN, rank=1)]
    assert names == ["run.log", "a", "../out", "nodes/../../out"]
    assert backend.store.manifest(RUN, rank=2) == ()
    here = tmp_path / "results" / "here"
    backend.store.fetch(RUN, str(here), lambda _done, _total: None, rank=1, only={"run.log"})
    assert files_below(here) == {"run.log": b"another"}
    with pytest.raises(KedgeError, match="2 of 4"):
        backend.store.fetch(RUN, str(here), lambda _done, _total: None, rank=1)
    assert files_below(tmp_path / "results") == {"here/run.log": b"another", "here/a": b"a"}


@pytest.mark.parametrize("path", ["../out", "/tmp/kedge-test-out", "a/../../out", "", ".", "link/out", "a\0b"])
def test_a_path_that_leads_elsewhere_is_refused(backend: Backend, tmp_path: Path, path: str) -> None:
    """A manifest comes from a machine: it can't make kedge write outside the folder, not even through a link."""
    upload_run(backend, {path: b"evil", "good": b"fine"})
    here = tmp_path / "here"
    here.mkdir()
    (tmp_path / "elsewhere").mkdir()
    (here / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(KedgeError, match="1 of 2"):
        fetch(backend, here)
    assert files_below(here) == {"good": b"fine"}
    assert not list((tmp_path / "elsewhere").iterdir())
    assert not (tmp_path / "out").exists()
    assert not Path("/tmp/kedge-test-out").exists()


def test_a_checksum_that_is_a_path_is_refused(backend: Backend, tmp_path: Path) -> None:
    """The name of a blob can't reach other files on the laptop."""
    (tmp_path / "secret").write_bytes(b"secret")
    upload_run(backend, {"loot": b"secret"})
    digest = hashlib.sha256(b"secret").hexdigest().encode()
    backend.put("manifest.json", backend.read("manifest.json").replace(digest, str(tmp_path / "secret").encode()))
    with pytest.raises(KedgeError, match="not a checksum"):
        fetch(backend, tmp_path / "here")
    assert not (tmp_path / "here" / "loot").exists()


def test_a_result_that_is_a_link_here_is_replaced_not_followed(backend: Backend, tmp_path: Path) -> None:
    """The link's target keeps its content."""
    upload_run(backend, {"result": b"new"})
    (tmp_path / "mine").write_bytes(b"mine")
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "result").symlink_to(tmp_path / "mine")
    fetch(backend, tmp_path / "here")
    assert (tmp_path / "mine").read_bytes() == b"mine"
    assert (tmp_path / "here" / "result").read_bytes() == b"new"


def test_a_manifest_that_is_damaged_is_an_error(backend: Backend, tmp_path: Path) -> None:
    """It isn't mistaken for a run without results."""
    upload_run(backend, {})
    backend.put("manifest.json", b'{"files": [')
    with pytest.raises(KedgeError, match="can't be read"):
        backend.store.manifest(RUN)


@pytest.mark.parametrize("run_id", ["", "..", "../x", "a/b", "/etc"])
def test_a_run_id_that_is_a_path_is_refused(backend: Backend, run_id: str) -> None:
    """It would name a folder outside the store."""
    with pytest.raises(BadRequestError):
        backend.store.manifest(run_id)


def test_a_single_file_can_be_read(backend: Backend) -> None:
    """The log of a run whose machine is gone; empty if it wasn't uploaded."""
    upload_run(backend, {"run.log": "fünf\n".encode()})
    assert backend.store.read_file(RUN, "run.log") == "fünf\n".encode()
    assert backend.store.read_file(RUN, "nothing.log") == b""
    last = backend.store.last_upload(RUN)
    assert last is not None
    assert last.at.timestamp() == MTIME


def test_two_results_with_the_same_content_both_arrive(backend: Backend, tmp_path: Path) -> None:
    """They share a blob, and are copied at the same time."""
    files = {f"checkpoints/{number}.pt": b"the same" for number in range(20)}
    upload_run(backend, files)
    fetch(backend, tmp_path / "here")
    assert files_below(tmp_path / "here") == files


def test_a_result_in_the_folder_of_partial_downloads_is_refused(backend: Backend, tmp_path: Path) -> None:
    """A machine can't plant what a later fetch continues, and no link there is followed."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / ".kedge-partial").symlink_to(tmp_path / "elsewhere")
    upload_run(backend, {".kedge-partial/x": b"evil", "good": b"fine"})
    with pytest.raises(KedgeError, match="1 of 2"):
        fetch(backend, tmp_path / "here")
    assert files_below(tmp_path / "here") == {"good": b"fine"}
    assert not list((tmp_path / "elsewhere").iterdir())


@pytest.mark.parametrize("link", ["results", "results/run-1"])
def test_nothing_is_fetched_through_a_link_in_the_destinations_place(
    backend: Backend, tmp_path: Path, link: str
) -> None:
    """Whether the run's folder or its parent is the link."""
    upload_run(backend, {"authorized_keys": b"a stranger's"})
    (tmp_path / "user").mkdir()
    (tmp_path / link).parent.mkdir(exist_ok=True)
    (tmp_path / link).symlink_to(tmp_path / "user")
    with pytest.raises(BadRequestError, match="is a link"):
        fetch(backend, tmp_path / "results" / "run-1")
    assert list((tmp_path / "user").iterdir()) == []


def rewrite(backend: Backend, *rows: Mapping[str, object]) -> None:
    """Change the rows of a manifest."""
    manifest = json.loads(backend.read("manifest.json"))
    manifest["files"] = [{**old, **new} for old, new in zip(manifest["files"], rows, strict=True)]
    backend.put("manifest.json", json.dumps(manifest).encode())


@pytest.mark.parametrize(
    "links",
    [
        {"d1/d2/a": "n/../..", "d1/d2/n": "../.."},
        {"a/b/x": "../..", "a/b/x/l": "../../.."},
        {"x": "/etc"},
    ],
    ids=["two steps", "below a link", "absolute"],
)
def test_no_fetched_link_leads_out_of_the_results(backend: Backend, tmp_path: Path, links: dict[str, str]) -> None:
    """Not even by way of other links, in any order, in one fetch or in two."""
    here = tmp_path / "results"
    for some in (dict(list(links.items())[:1]), links, dict(reversed(links.items()))):
        upload_run(backend, {"good": b"fine", **dict.fromkeys(some, b"")})
        rewrite(backend, {}, *({"link": target} for target in some.values()))
        arrival = backend.store.fetch(RUN, str(here), lambda _done, _total: None)
        assert not arrival.left_out.keys() - links.keys()
    assert arrival.left_out
    assert [path for path in here.rglob("*") if not path.resolve().is_relative_to(here)] == []
    assert (here / "good").read_bytes() == b"fine"


@pytest.mark.parametrize("size", [5, 0])
def test_an_object_larger_than_it_says_is_cut_off(tmp_path: Path, size: int) -> None:
    """It can't fill the laptop's disk: kedge writes no more than the manifest's size."""
    backend = FolderBackend(tmp_path / "store")
    upload_run(backend, {"bomb": b"small", "good": b"fine"})
    rewrite(backend, {"bytes": size}, {})
    with (tmp_path / "store" / RUN / blob_key(b"small")).open("wb") as blob:
        blob.truncate(4 << 30)
    began = time.monotonic()
    with pytest.raises(KedgeError, match="1 of 2"):
        fetch(backend, tmp_path / "here")
    assert files_below(tmp_path / "here") == {"good": b"fine"}
    assert time.monotonic() - began < 10


def test_more_than_the_disk_holds_is_refused_before_anything_is_copied(backend: Backend, tmp_path: Path) -> None:
    """A machine may claim any size for its results."""
    upload_run(backend, {"bomb": b"evil", "good": b"fine"})
    rewrite(backend, {"bytes": 1 << 60}, {})
    with pytest.raises(KedgeError, match="room"):
        fetch(backend, tmp_path / "here")
    assert files_below(tmp_path / "here") == {}


def test_a_large_local_file_does_not_count_as_free_space_for_another(backend: Backend, tmp_path: Path) -> None:
    """Of a file that is there already, only the listed size counts."""
    upload_run(backend, {"bomb": b"evil", "good": b"fine"})
    rewrite(backend, {"bytes": 1 << 42}, {})
    (tmp_path / "here").mkdir()
    with (tmp_path / "here" / "good").open("wb") as there:
        there.truncate(1 << 42)
    with pytest.raises(KedgeError, match="room"):
        fetch(backend, tmp_path / "here")


@pytest.mark.parametrize(
    "damage", [{"mtime": 1e300}, {"mtime": -1e300}, {"bytes": -5}, {"path": "a" * 5000}, {"path": "b/" * 3000 + "c"}]
)
def test_an_invalid_entry_costs_only_that_file(backend: Backend, tmp_path: Path, damage: dict[str, object]) -> None:
    """It is reported, and the others are copied."""
    upload_run(backend, {"bad": b"evil", "good": b"fine"})
    rewrite(backend, damage, {})
    with pytest.raises(KedgeError, match="1 of 2"):
        fetch(backend, tmp_path / "here")
    assert files_below(tmp_path / "here") == {"good": b"fine"}


def test_a_huge_manifest_is_not_read(tmp_path: Path) -> None:
    """Whoever can write to the store can't fill the laptop's memory."""
    backend = FolderBackend(tmp_path / "store")
    upload_run(backend, {"run.log": b"x"})
    with (tmp_path / "store" / RUN / "manifest.json").open("r+b") as stream:
        stream.truncate(8 << 30)
    with pytest.raises(KedgeError, match="longer"):
        backend.store.read_file(RUN, "run.log")
