"""A data set reaches the machine unchanged, in few requests, and only changes are transferred."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest

from orchestrator.adapters.sync.data.index import INDEX_BYTES, decode_index
from orchestrator.adapters.sync.data.push import data_name
from orchestrator.core.errors import BadRequestError, KedgeError
from tests.adapters.buckets import asked
from tests.adapters.datasets.lab import NAME, Lab, noise, picture

AWKWARD = [
    b"a b.png",
    b'it\'s "quoted".png',
    b"line\nbreak.png",
    "é☃ üñï.png".encode(),
    b"latin-\xe9\xff.png",
    b"-rf",
    b"*?[x]$HOME`id`;.png",
    b"back\\slash",
    b"deep/" + b"x" * 200 + b"/" + b"y" * 200 + b".png",
]


PIECE = {"shard": "s", "offset": 0, "bytes": 1, "sha256": "0" * 64}


def test_everything_in_the_folder_arrives(lab: Lab) -> None:
    """Odd names, names that are not UTF-8, modes, times, links, empty files and empty folders."""
    for name in AWKWARD:
        lab.write(name, name * 3)
    lab.write("large.bin", noise(200_001))
    lab.write("tool.sh", b"#!/bin/sh\n").chmod(0o750)
    lab.write("empty", b"")
    (lab.source / "no files/here").mkdir(parents=True)
    (lab.source / os.fsdecode(b"link \xff")).symlink_to(os.fsdecode(b"latin-\xe9\xff.png"))
    (lab.source / "to folder").symlink_to("deep")
    (lab.source / "dangling").symlink_to("not/there")
    lab.push()
    lab.pull()
    assert picture(lab.target) == picture(lab.source)


def test_a_single_file_arrives_under_the_target_s_name(lab: Lab) -> None:
    """Other files in that folder of the machine stay."""
    lab.target.parent.mkdir(parents=True)
    (lab.target.parent / "table.csv").write_bytes(b"another data set's")
    table = lab.write("table.csv", noise(100_000))
    for content in (noise(100_000), noise(100_000, 2)):
        table.write_bytes(content)
        lab.push(source=table)
        lab.pull()
        assert lab.target.read_bytes() == content
        assert (lab.target.parent / "table.csv").read_bytes() == b"another data set's"


def test_links_out_of_the_folder_arrive_as_their_targets_if_the_plan_listed_them(lab: Lab, tmp_path: Path) -> None:
    """The target is a file or a whole folder. With other links, nothing is sent."""
    (tmp_path / "cache" / "blobs").mkdir(parents=True)
    (tmp_path / "cache" / "blobs" / "x").write_bytes(b"weights")
    (lab.source / "model.bin").symlink_to(tmp_path / "cache" / "blobs" / "x")
    (lab.source / "all").symlink_to("../cache")
    with pytest.raises(BadRequestError, match="leaves it"):
        lab.push()
    assert lab.shards() == []
    lab.push(places=[str(tmp_path / "cache")])
    lab.pull()
    assert (lab.target / "model.bin").read_bytes() == b"weights"
    assert not (lab.target / "model.bin").is_symlink()
    assert (lab.target / "all" / "blobs" / "x").read_bytes() == b"weights"


@pytest.mark.parametrize("target", ["/no/such/thing", ".."])
def test_a_link_that_cannot_be_followed_is_refused(lab: Lab, target: str) -> None:
    """A broken link, and a link to a folder that contains it."""
    (lab.source / "bad").symlink_to(target)
    with pytest.raises(BadRequestError, match="bad"):
        lab.push()


def test_an_unchanged_data_set_takes_one_request(lab: Lab) -> None:
    """The bucket is not listed and no file is read. The machine has the pinned index, and only stats its files."""
    for number in range(50):
        lab.write(f"{number}.png", noise(3_000, number))
    assert lab.push() == 150_000
    before = len(lab.aws.gate.asked)
    assert lab.push() == 0
    assert asked(lab.aws, since=before) == [f"HEAD /data/{NAME}/index.json.gz"]
    lab.pull()
    before = len(lab.aws.gate.asked)
    assert lab.pull() == 0
    assert asked(lab.aws, since=before) == []


def test_only_changes_are_uploaded_and_downloaded(lab: Lab) -> None:
    """A new file among many, and a new time without new content."""
    for number in range(40):
        lab.write(f"{number:02}.png", noise(5_000, number))
    lab.push()
    lab.pull()
    lab.write("20b.png", b"new")
    os.utime(lab.source / "03.png", (1_600_000_000, 1_600_000_000))
    assert lab.push() == 3
    assert lab.pull() <= 3 + 5_000
    assert picture(lab.target) == picture(lab.source)


def test_another_laptop_uploads_nothing_that_the_bucket_has(lab: Lab, tmp_path: Path) -> None:
    """Without the first laptop's cache, contents are compared by checksum."""
    for number in range(40):
        lab.write(f"{number:02}.png", noise(5_000, number))
    lab.push()
    assert lab.push(state=tmp_path / "another laptop") == 0


def test_what_somebody_else_wrote_to_the_index_is_not_passed_on(lab: Lab, tmp_path: Path) -> None:
    """Every droplet may write to the bucket, but cannot add a file to a data set: machines trust the pinned index."""
    lab.write("a.png", b"a")
    lab.push()
    (tmp_path / "evil").mkdir()
    (tmp_path / "evil" / "a.png").write_bytes(b"a")
    (tmp_path / "evil" / "weights.pt").write_bytes(b"a pickle")
    lab.push(source=tmp_path / "evil", state=tmp_path / "a droplet's")
    lab.push()
    lab.pull()
    assert picture(lab.target) == picture(lab.source)


def test_a_renamed_large_file_is_not_sent_again(lab: Lab) -> None:
    """The bucket stores contents by checksum."""
    big = lab.write("big.bin", noise(200_000))
    lab.push()
    big.rename(lab.source / "renamed.bin")
    assert lab.push(delete=True) == 0
    lab.pull()
    assert picture(lab.target) == picture(lab.source)


@pytest.mark.parametrize("delete", [False, True])
def test_files_deleted_on_the_laptop_are_deleted_on_the_machine_on_request(lab: Lab, delete: bool) -> None:
    """So are links and folders. Files that a run wrote beside the data always stay."""
    lab.write("sub/old.png", b"old")
    lab.write("sub/deep/older.png", b"older")
    lab.write("kept.png", b"kept")
    (lab.source / "link").symlink_to("kept.png")
    lab.push()
    lab.pull()
    (lab.target / "cache.bin").write_bytes(b"a run's own")
    before = picture(lab.target)
    (lab.source / "sub/old.png").unlink()
    (lab.source / "sub/deep/older.png").unlink()
    (lab.source / "sub/deep").rmdir()
    (lab.source / "sub").rmdir()
    (lab.source / "link").unlink()
    lab.push()
    lab.push(delete=delete)
    lab.pull()
    after = picture(lab.target)
    assert after.pop("cache.bin")[1] == b"a run's own"
    assert after == (picture(lab.source) if delete else {k: v for k, v in before.items() if k != "cache.bin"})
    assert (lab.target / "sub").exists() is not delete


def test_shards_without_a_reference_are_deleted(lab: Lab) -> None:
    """A shard that is mostly unused is packed again, so the bucket has at most twice the data."""
    for number in range(12):
        lab.write(f"{number:02}.png", noise(5_000, number))
    lab.push()
    for number in range(10):
        (lab.source / f"{number:02}.png").unlink()
    lab.push(delete=True)
    assert sum(len(lab.aws.read(key) or b"") for key in lab.shards()) == 10_000
    lab.pull()
    assert picture(lab.target) == picture(lab.source)


def test_a_file_becomes_a_folder_and_a_folder_a_link(lab: Lab) -> None:
    """The kind of a path can change, with and without deletion."""
    lab.write("a", b"file")
    lab.write("b/x", b"in b")
    lab.push()
    lab.pull()
    (lab.source / "a").unlink()
    lab.write("a/y", b"in a")
    (lab.source / "b").rename(lab.source / "b2")
    (lab.source / "b").symlink_to("b2")
    lab.push()
    lab.pull()
    assert picture(lab.target) == picture(lab.source)


def test_equal_paths_have_equal_names_and_different_paths_different_ones() -> None:
    """The name is a plain word, whatever the folder is called."""
    assert data_name("/a/Image Net!") == data_name("/a/b/../Image Net!")
    assert data_name("/a/Image Net!").startswith("Image-Net-")
    assert data_name("/b/Image Net!") != data_name("/a/Image Net!")
    assert data_name("/a/x", "data/train").startswith("data-train-")


def test_a_data_set_name_that_is_a_path_is_refused(lab: Lab) -> None:
    """It could lead to another data set."""
    with pytest.raises(BadRequestError):
        lab.data().put(str(lab.source), lambda _done, _total: None, name="../runs")


def test_a_damaged_cache_is_ignored(lab: Lab) -> None:
    """The bucket is queried instead."""
    lab.write("a.png", b"a")
    lab.push()
    remembered = next(lab.state.iterdir())
    remembered.write_bytes(remembered.read_bytes().partition(b"\n")[0] + b"\n" + json.dumps([]).encode()[:1])
    lab.write("b.png", b"b")
    assert lab.push() == 1
    lab.pull()
    assert picture(lab.target) == picture(lab.source)


@pytest.mark.parametrize(
    "damage",
    [
        {"files": "x"},
        {"files": [{"path": "a", "mode": 1, "mtime_ns": 1, "pieces": [["x"]]}]},
        {"files": [{"path": "a", "mode": 1, "mtime_ns": 1, "pieces": [PIECE | {"shard": "other"}]}]},
        {"files": [{"path": "a", "mode": 1, "mtime_ns": 1, "pieces": [PIECE | {"bytes": -1}]}]},
        {"files": [{"path": "a", "mode": 1e400, "mtime_ns": 1, "pieces": []}]},
        {"links": [1]},
        {"shards": {"x": None}},
    ],
)
def test_an_invalid_index_is_a_kedge_error(damage: dict[str, Any]) -> None:
    """Whatever the index in the bucket contains."""
    content = {"format": 1, "is_file": False, "files": [], "links": {}, "folders": [], "shards": {}} | damage
    with pytest.raises(KedgeError, match="can't be read"):
        decode_index(gzip.compress(json.dumps(content).encode()))


def test_an_index_that_is_too_large_is_a_kedge_error() -> None:
    """100,000 nested lists, and a little more than 256 MiB of zeros."""
    for content in (b"[" * 100_000, bytes(INDEX_BYTES + 1)):
        with pytest.raises(KedgeError, match="can't be read"):
            decode_index(gzip.compress(content, 1))
