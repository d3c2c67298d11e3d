"""No file is written through a link."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.adapters.host.files import (
    make_folder,
    open_to_write,
    opened_folder,
    read_small,
    require_no_link,
    write_atomically,
)
from orchestrator.core.errors import BadRequestError


@pytest.fixture
def bashrc(tmp_path: Path) -> Path:
    """A file of the user's that the tests' links lead to."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "bashrc").write_text("mine")
    return tmp_path / "home" / "bashrc"


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    """Folders are private, the file has the requested mode, and no temporary file is left."""
    place = tmp_path / "a" / "b" / "file"
    write_atomically(place, b"one")
    write_atomically(place, b"two", mode=0o644, durable=True)
    assert place.read_bytes() == b"two"
    assert stat.S_IMODE(place.stat().st_mode) == 0o644
    assert stat.S_IMODE(place.parent.stat().st_mode) == 0o700
    assert names(place.parent) == ["file"]


@pytest.mark.parametrize("target", ["home/bashrc", "home/new", "place"])
def test_a_link_in_a_files_place_is_refused(tmp_path: Path, bashrc: Path, target: str) -> None:
    """A link to a file, to nothing, or to itself: the error names it, and nothing is written."""
    place = tmp_path / "place"
    place.symlink_to(target)
    for write in writers(place):
        with pytest.raises(BadRequestError, match="place is a link"):
            write()
    assert bashrc.read_text() == "mine"
    assert names(bashrc.parent) == ["bashrc"]


def test_a_link_in_the_folders_place_is_refused(tmp_path: Path, bashrc: Path) -> None:
    """No file is written into a folder that is reached through a link."""
    (tmp_path / "folder").symlink_to("home")
    place = tmp_path / "folder" / "bashrc"
    attempts: list[Callable[[], None]] = [*writers(place), lambda: make_folder(place.parent)]
    for write in attempts:
        with pytest.raises(BadRequestError, match="folder is a link"):
            write()
    assert bashrc.read_text() == "mine"


def test_no_link_below_a_trusted_folder_is_followed(tmp_path: Path, bashrc: Path) -> None:
    """The trusted folder itself may be reached through a link. Below it no link is followed, at any depth."""
    (tmp_path / "real").mkdir()
    (tmp_path / "project").symlink_to("real")
    (tmp_path / "real" / "results").symlink_to("../home")
    within = tmp_path / "project"
    write_atomically(within / "fine" / "file", b"x", within=within)
    assert (tmp_path / "real" / "fine" / "file").read_bytes() == b"x"
    for place in (within / "results" / "bashrc", within / "results" / "deep" / "er" / "file"):
        with pytest.raises(BadRequestError, match="results is a link"):
            write_atomically(place, b"x", within=within)
        with pytest.raises(BadRequestError, match="results is a link"):
            require_no_link(place, within=within)
    assert names(bashrc.parent) == ["bashrc"]


@pytest.mark.parametrize("kind", ["pipe", "folder"])
def test_a_pipe_or_a_folder_is_not_replaced(tmp_path: Path, kind: str) -> None:
    """Nothing waits for a pipe's reader, and no folder is removed."""
    place = tmp_path / "place"
    os.mkfifo(place) if kind == "pipe" else place.mkdir()
    for write in writers(place):
        with pytest.raises(BadRequestError, match="not a regular file"):
            write()


def test_a_file_in_the_folders_place_is_refused(tmp_path: Path) -> None:
    """The error says what is in the way."""
    (tmp_path / "place").write_text("x")
    with pytest.raises(BadRequestError, match="place is not a folder"):
        write_atomically(tmp_path / "place" / "file", b"x")


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    """No temporary file is left either."""
    write_atomically(tmp_path / "f" / "file", b"old")
    with pytest.raises(TypeError):
        write_atomically(tmp_path / "f" / "file", "text")  # type: ignore[arg-type]
    assert names(tmp_path / "f") == ["file"]
    assert (tmp_path / "f" / "file").read_bytes() == b"old"


def test_descriptors_are_closed(tmp_path: Path) -> None:
    """Also after a link was refused."""
    (tmp_path / "link").symlink_to("nowhere")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(5):
        with opened_folder(tmp_path / "a" / "b", within=tmp_path):
            pass
        with pytest.raises(BadRequestError):
            make_folder(tmp_path / "link" / "x", within=tmp_path)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_reading_a_file_is_limited_in_size(tmp_path: Path) -> None:
    """A file may be as large as the limit, and no larger."""
    (tmp_path / "file").write_bytes(b"x" * 10)
    assert read_small(tmp_path / "file", limit=10) == b"x" * 10
    with pytest.raises(BadRequestError, match="too large"):
        read_small(tmp_path / "file", limit=9)


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def writers(place: Path) -> list[Callable[[], None]]:
    """Each way to write a file."""
    return [
        lambda: write_atomically(place, b"x"),
        lambda: open_to_write(place).close(),
        lambda: open_to_write(place, append=True).close(),
    ]
