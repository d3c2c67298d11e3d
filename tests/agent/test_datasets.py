"""The machine mirrors a data set from its store, and trusts nothing that it reads there."""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.agent.base.errors import AgentError, RequestError
from orchestrator.agent.base.layout import Layout
from orchestrator.agent.base.wire import MachineConfig
from orchestrator.agent.data.mirror import execute, mirror_data_set, open_data
from orchestrator.agent.s3.store import FolderStore

MTIME_NS = 1_700_000_000_123_456_789


class Counting(FolderStore):
    """A store that records which objects are fetched."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.fetched: list[str] = []
        self.asked = 0

    def read(self, key: str) -> bytes | None:
        self.asked += 1
        return super().read(key)

    def get(self, key: str) -> Iterator[bytes]:
        self.fetched.append(key)
        return super().get(key)


class Shelf:
    """A data set in a folder, and the folder that mirrors it."""

    def __init__(self, root: Path) -> None:
        self.place = root / "store" / "data" / "digits"
        self.target = root / "machine" / "data" / "digits"
        self.store = Counting(self.place)

    def lay(self, files: dict[str, bytes], **more: Any) -> None:
        """Write an index with one shard for each file, as the laptop does."""
        rows = [
            {"path": path, "mode": 0o644, "mtime_ns": MTIME_NS, "pieces": [self.shard(content)] if content else []}
            for path, content in files.items()
        ]
        index = {"format": 1, "is_file": False, "files": rows, "links": {}, "folders": [], "shards": {}, **more}
        self.store.write("index.json.gz", gzip.compress(json.dumps(index).encode()))

    def shard(self, content: bytes) -> dict[str, object]:
        name = hashlib.sha256(content).hexdigest()
        self.store.write(f"shards/{name}", content)
        return {"shard": name, "offset": 0, "bytes": len(content), "sha256": name}

    def pull(self) -> None:
        mirror_data_set(self.store, self.target, pin=self.digest())

    def digest(self) -> str:
        """Return the laptop's pin of the index."""
        return hashlib.sha256((self.place / "index.json.gz").read_bytes()).hexdigest()

    def files(self) -> dict[str, bytes]:
        paths = [path for path in self.target.rglob("*") if path.is_file() and ".kedge" not in path.parts]
        return {str(path.relative_to(self.target)): path.read_bytes() for path in paths}


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path)


def test_files_arrive_with_their_times_and_are_not_fetched_again(shelf: Shelf) -> None:
    """Neither the next pull nor the first one of a new machine with the same volume downloads them."""
    shelf.lay({"a/b.png": b"content", "empty": b""})
    shelf.pull()
    assert shelf.files() == {"a/b.png": b"content", "empty": b""}
    assert (shelf.target / "a/b.png").stat().st_mtime_ns == MTIME_NS
    shelf.store.fetched.clear()
    shelf.pull()
    assert shelf.store.fetched == []


def test_a_local_index_with_the_right_pin_is_not_fetched(shelf: Shelf) -> None:
    """The files that it names are checked all the same; an index with another pin is fetched."""
    shelf.lay({"a.png": b"content"})
    shelf.pull()
    shelf.store.asked = 0
    shelf.pull()
    assert shelf.store.asked == 0
    (shelf.target / "a.png").unlink()
    shelf.pull()
    assert (shelf.files(), shelf.store.asked) == ({"a.png": b"content"}, 0)
    shelf.lay({"a.png": b"newer content"})
    shelf.pull()
    assert (shelf.files(), shelf.store.asked) == ({"a.png": b"newer content"}, 1)


def test_a_file_that_a_run_has_changed_is_brought_back(shelf: Shelf) -> None:
    """A mirror equals the data set; a file that the run has added stays."""
    shelf.lay({"a.png": b"content", "b.png": b"other"})
    shelf.pull()
    (shelf.target / "a.png").write_bytes(b"changed")
    (shelf.target / "cache.bin").write_bytes(b"mine")
    shelf.store.fetched.clear()
    shelf.pull()
    assert shelf.files() == {"a.png": b"content", "b.png": b"other", "cache.bin": b"mine"}
    assert len(shelf.store.fetched) == 1


def test_files_that_the_data_set_no_longer_has_are_removed(shelf: Shelf) -> None:
    """Then-empty folders are removed too; a folder in which a run has put a file stays."""
    shelf.lay({"gone/a": b"a", "mixed/b": b"b", "kept": b"c"}, folders=["empty"])
    shelf.pull()
    (shelf.target / "mixed/mine").write_bytes(b"mine")
    shelf.lay({"kept": b"c"})
    shelf.pull()
    assert shelf.files() == {"kept": b"c", "mixed/mine": b"mine"}
    assert not (shelf.target / "gone").exists()
    assert not (shelf.target / "empty").exists()


@pytest.mark.parametrize("path", ["../out", "/tmp/kedge-out", "a/../../out", "", ".", "a//b", "a\0b", ".kedge/x"])
def test_a_path_that_leads_elsewhere_is_refused(shelf: Shelf, path: str) -> None:
    """Nothing of such an index is carried out."""
    shelf.lay({"good": b"fine", path: b"evil"})
    with pytest.raises(AgentError, match="index"):
        shelf.pull()
    assert shelf.files() == {}


@pytest.mark.parametrize("target", ["/etc/passwd", "../out", "a/../../out", ""])
def test_a_link_that_leaves_the_data_set_is_refused(shelf: Shelf, target: str) -> None:
    """The laptop sends the link's target instead."""
    shelf.lay({}, links={"link": target})
    with pytest.raises(AgentError, match="index"):
        shelf.pull()


@pytest.mark.parametrize(
    "more",
    [
        {"links": {"d1/d2/a": "n/../../..", "d1/d2/n": "../.."}},
        {"folders": ["a/b/x"], "links": {"a/b/x": "../..", "a/b/x/l": "../../.."}},
    ],
    ids=["two steps", "below a link"],
)
def test_no_link_leaves_the_data_set_through_another_link(shelf: Shelf, more: dict[str, Any]) -> None:
    """Each link by itself seems to stay inside."""
    shelf.lay({"good": b"fine"}, **more)
    with pytest.raises(AgentError, match="index"):
        shelf.pull()
    inside = shelf.target.resolve()
    assert [path for path in shelf.target.rglob("*") if not path.resolve().is_relative_to(inside)] == []


def test_an_index_that_unpacks_to_more_than_any_index_is_refused(shelf: Shelf) -> None:
    """A few hundred kilobytes of it can be gigabytes of zeros: they are not unpacked."""
    packed = zlib.compressobj(1, zlib.DEFLATED, 31)
    zeros = bytes(1 << 20)
    shelf.store.write("index.json.gz", b"".join(packed.compress(zeros) for _ in range(257)) + packed.flush())
    with pytest.raises(AgentError, match="index, unpacked, is larger than 256 MiB"):
        shelf.pull()


def test_nothing_is_written_through_a_link(shelf: Shelf, tmp_path: Path) -> None:
    """A link where the data set has a folder is replaced; the link's target stays as it was."""
    (tmp_path / "elsewhere").mkdir()
    shelf.target.mkdir(parents=True)
    (shelf.target / "sub").symlink_to(tmp_path / "elsewhere")
    (shelf.target / ".kedge").symlink_to(tmp_path / "elsewhere")
    shelf.lay({"sub/a": b"a"})
    shelf.pull()
    assert shelf.files() == {"sub/a": b"a"}
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_run_s_own_folder_in_the_way_is_reported(shelf: Shelf) -> None:
    """Its content isn't removed."""
    (shelf.target / "a").mkdir(parents=True)
    (shelf.target / "a" / "mine").write_bytes(b"mine")
    shelf.lay({"a": b"a file"})
    with pytest.raises(AgentError, match="in the way"):
        shelf.pull()
    assert shelf.files() == {"a/mine": b"mine"}


def test_a_mirror_on_a_volume_is_reached_through_the_folders_own_link(shelf: Shelf, tmp_path: Path) -> None:
    """`data/<target>` may be a link to a mounted volume."""
    (tmp_path / "volume").mkdir()
    shelf.target.parent.mkdir(parents=True)
    shelf.target.symlink_to(tmp_path / "volume")
    shelf.lay({"a": b"a"})
    shelf.pull()
    assert (tmp_path / "volume" / "a").read_bytes() == b"a"
    assert shelf.target.is_symlink()


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"no gzip", id="no gzip"),
        pytest.param(gzip.compress(b"[]"), id="no object"),
        pytest.param(gzip.compress(b'{"format": 2}'), id="another format"),
    ],
)
def test_an_invalid_index_is_reported(shelf: Shelf, raw: bytes) -> None:
    """It isn't taken for an empty data set, which would remove everything."""
    shelf.lay({"a": b"a"})
    shelf.pull()
    shelf.store.write("index.json.gz", raw)
    with pytest.raises(AgentError, match="index"):
        shelf.pull()
    assert shelf.files() == {"a": b"a"}


def test_a_shard_that_is_gone_for_good_is_reported(shelf: Shelf) -> None:
    """The index hasn't changed meanwhile: waiting for another one would never end."""
    shelf.lay({"a": b"a"})
    next((shelf.place / "shards").iterdir()).unlink()
    with pytest.raises(AgentError, match="damaged"):
        shelf.pull()


@pytest.mark.parametrize("content", [b"EVIL", b"", b"tr", b"EVILtrue"], ids=["other", "empty", "cut", "shifted"])
def test_a_replaced_shard_is_refused(shelf: Shelf, content: bytes) -> None:
    """It has the name of another content's hash, which the pinned index lists; nothing of it is visible."""
    shelf.lay({"code.py": b"true"})
    next((shelf.place / "shards").iterdir()).write_bytes(content)
    with pytest.raises(AgentError, match="damaged"):
        shelf.pull()
    assert shelf.files() == {}


def test_the_verb_pulls_from_the_top_of_the_store(shelf: Shelf, tmp_path: Path) -> None:
    """`data/<name>/` is at the top of the machine's store; a name or target that is a path elsewhere is refused."""
    root = tmp_path / "machine"
    root.mkdir()
    config = {"machine": "m1", "run": "r", "provider": "t", "created": 0, "deadline": 0, "usd_per_hour": "0"}
    config |= {"root": str(root), "store_url": (tmp_path / "store").as_uri()}
    (root / "machine.json").write_text(json.dumps(config))
    shelf.lay({"a": b"a"})
    assert execute(Layout(root), argparse.Namespace(name="digits", target="digits", index=shelf.digest())) == 0
    assert shelf.files() == {"a": b"a"}
    refused = [("../runs", "digits", shelf.digest()), ("digits", "../x", shelf.digest())]
    refused += [("digits", "/etc", shelf.digest()), ("digits", "digits", ""), ("digits", "digits", "../x")]
    for name, target, index in refused:
        with pytest.raises(RequestError):
            execute(Layout(root), argparse.Namespace(name=name, target=target, index=index))


def test_a_machine_without_a_store_says_so() -> None:
    """The error says what to do instead."""
    machine = MachineConfig("m1", "r", "t", "/", 0, 0, "0")
    with pytest.raises(RequestError, match="no store"):
        open_data(machine, "digits")
