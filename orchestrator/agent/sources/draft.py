"""A source on its way: whole files under `whole/`, and those that have begun under `parts/`, on the data's own disk.

A part knows what it is a part of, so that the next attempt, in another process, goes on where this one broke off.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import AgentError
from ..files import read_json, write_json

_SPARE_BYTES = 64 << 20
_FULL = (errno.ENOSPC, errno.EDQUOT)


class Part:
    """One file that has begun, and what is known of its whole."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._note = path.with_name(f"{path.name}.json")
        known = read_json(self._note)
        self.tag = str(known.get("tag", ""))
        self.total: int | None = known.get("total")
        self.size = path.stat().st_size if path.exists() and self.tag else 0

    @property
    def is_whole(self) -> bool:
        """Every byte is here."""
        return self.total is not None and self.size == self.total

    def begin(self, tag: str, total: int | None) -> None:
        """Forget what is here, and begin with something else."""
        with writing():
            self._path.write_bytes(b"")
            write_json(self._note, {"tag": tag, "total": total})
        self.tag, self.total, self.size = tag, total, 0

    def append(self, chunk: bytes) -> None:
        """Add what comes next."""
        with writing(), self._path.open("ab") as stream:
            stream.write(chunk)
        self.size += len(chunk)

    def chunks(self, size: int = 1 << 20) -> Iterator[bytes]:
        """Read what is here."""
        with self._path.open("rb") as stream:
            while chunk := stream.read(size):
                yield chunk

    def discard(self) -> None:
        """Throw it away."""
        self._path.unlink(missing_ok=True)
        self._note.unlink(missing_ok=True)
        self.tag, self.total, self.size = "", None, 0

    def finish(self, target: Path, modified: float | None) -> None:
        """Make it durable, and put it where it belongs."""
        with writing():
            descriptor = os.open(self._path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            if modified is not None:
                os.utime(self._path, (modified, modified))
            target.parent.mkdir(parents=True, exist_ok=True)
            self._path.replace(target)
        self._note.unlink(missing_ok=True)


class Draft:
    """The folder in which one source grows.

    Args:
        folder: on the disk on which the data will lie.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.whole = folder / "whole"
        self._parts = folder / "parts"

    def prepare(self) -> None:
        """Make the folders."""
        with writing():
            self.whole.mkdir(parents=True, exist_ok=True)
            self._parts.mkdir(parents=True, exist_ok=True)

    def begin_anew(self, version: str) -> None:
        """Throw away what an earlier attempt has fetched of another version."""
        mark = self.folder / "version.json"
        if read_json(mark).get("version") != version:
            shutil.rmtree(self.whole, ignore_errors=True)
            shutil.rmtree(self._parts, ignore_errors=True)
            self.prepare()
            with writing():
                write_json(mark, {"version": version})

    def place(self, path: str) -> Path:
        """Return where a file of the source lies when it is whole.

        Raises:
            AgentError: its name leads out of the target.
        """
        require_inside(path)
        return self.whole / path

    def part(self, path: str) -> Part:
        """Return the part of a file, with what an earlier attempt has left of it."""
        return Part(self._parts / hashlib.sha256(path.encode(errors="surrogateescape")).hexdigest())

    def require_room(self, size: int) -> None:
        """Refuse to begin what can't end.

        Raises:
            AgentError: so many bytes don't fit on the disk.
        """
        free = shutil.disk_usage(self.folder).free
        if size + _SPARE_BYTES > free:
            raise full_disk(f"{size / 1e9:,.1f} GB are still to come, and {free / 1e9:,.1f} GB are free")


def require_inside(path: str) -> None:
    """Refuse a name that isn't one of a file within the target.

    Raises:
        AgentError: it is absolute, empty, or has `..` or an empty folder in it.
    """
    if "\0" in path or any(part in ("", ".", "..") for part in path.split("/")):
        raise AgentError(
            f"the source has a file {path!r}, whose name leads out of the target or can't be a file's",
            why="whoever made it could write anywhere on the machine",
            fix="fetch it in `setup` if you trust it",
        )


@contextmanager
def writing() -> Iterator[None]:
    """Tell a disk that is full from a network that fails.

    Raises:
        AgentError: nothing can be written here.
    """
    try:
        yield
    except OSError as err:
        if err.errno in _FULL:
            raise full_disk(str(err)) from err
        raise AgentError("data can't be written", why=str(err)) from err


def full_disk(why: str) -> AgentError:
    """Make the error of a disk that is too small."""
    return AgentError("the data doesn't fit on the disk", why=why, fix="ask for a larger disk with `disk_size`")
