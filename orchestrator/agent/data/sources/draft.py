"""The download folder of a source, on the data's own disk: complete files under `whole/`, partial ones under `parts/`.

A partial file records what it is a part of, so that the next attempt, in another process, resumes the download. After
the end of a machine, or a power cut, only what was synced counts: a disk may have zeros in the place of the rest.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ...base.errors import AgentError
from ...base.files import read_json, write_json
from ...base.processes import boot_id

_SPARE_BYTES = 64 << 20
_SYNCED_BYTES = 256 << 20
"""How much of a file may be lost with its machine."""


class FullDiskError(AgentError):
    """The disk has no room for the data."""


class PartialFile:
    """One partial file, with the tag and the total size of the whole."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._note = path.with_name(f"{path.name}.json")
        known = _checked(read_json(self._note))
        self.tag = str(known.get("tag", ""))
        self.total: int | None = known.get("total")
        self.size = path.stat().st_size if path.exists() and self.tag else 0
        self._synced: int = known.get("synced", 0)
        if self.size > self._synced and known.get("boot", boot_id()) != boot_id():
            self.size = self._synced
            os.truncate(path, self.size)

    @property
    def is_whole(self) -> bool:
        """Whether all bytes are here."""
        return self.total is not None and self.size == self.total

    def begin(self, tag: str, total: int | None) -> None:
        """Discard the content, and start with another one."""
        self.tag, self.total, self.size, self._synced = tag, total, 0, 0
        with writing():
            self._path.write_bytes(b"")
            self._describe()

    def append(self, chunk: bytes) -> None:
        """Append the next bytes."""
        with writing():
            with self._path.open("ab") as stream:
                stream.write(chunk)
            self.size += len(chunk)
            if self.size - self._synced >= _SYNCED_BYTES:
                _sync(self._path)
                self._synced = self.size
                self._describe()

    def chunks(self, size: int = 1 << 20) -> Iterator[bytes]:
        """Read the content so far."""
        with self._path.open("rb") as stream:
            while chunk := stream.read(size):
                yield chunk

    def discard(self) -> None:
        """Remove the file."""
        self._path.unlink(missing_ok=True)
        self._note.unlink(missing_ok=True)
        self.tag, self.total, self.size = "", None, 0

    def finish(self, target: Path, modified: float | None) -> None:
        """Make it durable, and move it to its target."""
        with writing():
            _sync(self._path)
            if modified is not None:
                os.utime(self._path, (modified, modified))
            target.parent.mkdir(parents=True, exist_ok=True)
            self._path.replace(target)
        self._note.unlink(missing_ok=True)

    def _describe(self) -> None:
        known = {"tag": self.tag, "total": self.total, "synced": self._synced, "boot": boot_id()}
        write_json(self._note, known)


def _checked(known: dict[str, Any]) -> dict[str, Any]:
    """Return a record; nothing if it makes no sense, because others may write to a volume."""
    sizes = (known.get("synced", 0), 0 if known.get("total") is None else known["total"])
    return known if all(type(size) is int and size >= 0 for size in sizes) else {}


class SourceDraft:
    """The folder that one source is downloaded to.

    Args:
        folder: on the same disk as the data's target.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.whole = folder / "whole"
        self._parts = folder / "parts"

    def prepare(self) -> None:
        """Create the folders."""
        with writing():
            self.whole.mkdir(parents=True, exist_ok=True)
            self._parts.mkdir(parents=True, exist_ok=True)

    def begin_anew(self, version: str) -> None:
        """Discard what an earlier attempt has downloaded of another version."""
        version_file = self.folder / "version.json"
        if read_json(version_file).get("version") != version:
            shutil.rmtree(self.whole, ignore_errors=True)
            shutil.rmtree(self._parts, ignore_errors=True)
            self.prepare()
            with writing():
                write_json(version_file, {"version": version})

    def place(self, path: str) -> Path:
        """Return the path for a complete file of the source.

        Raises:
            AgentError: its name leaves the target.
        """
        require_inside(path)
        return self.whole / path

    def part(self, path: str) -> PartialFile:
        """Return a file's partial download, with the content of an earlier attempt."""
        return PartialFile(self._parts / hashlib.sha256(path.encode(errors="surrogateescape")).hexdigest())

    def require_room(self, size: int) -> None:
        """Check that the disk has room for a download.

        Raises:
            AgentError: it hasn't.
        """
        free = shutil.disk_usage(self.folder).free
        if size + _SPARE_BYTES > free:
            raise full_disk(f"{size / 1e9:,.1f} GB are still missing, and {free / 1e9:,.1f} GB are free")


def require_inside(path: str) -> None:
    """Refuse a name that isn't a file's within the target.

    Raises:
        AgentError: it is absolute, empty, or has `..` or an empty folder in it.
    """
    if "\0" in path or any(part in ("", ".", "..") for part in path.split("/")):
        raise AgentError(
            f"the source has a file {path!r}, whose name leaves the target or is invalid",
            why="whoever made it could write anywhere on the machine",
            fix="fetch it in `setup` if you trust it",
        )


def is_full(err: OSError) -> bool:
    """Whether the disk, or a quota, is full."""
    return err.errno in (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def writing() -> Iterator[None]:
    """Turn write errors into AgentError, to distinguish a full disk from a failing network.

    Raises:
        AgentError: the data can't be written.
    """
    try:
        yield
    except OSError as err:
        if is_full(err):
            raise full_disk(str(err)) from err
        raise AgentError("data can't be written", why=str(err)) from err


def full_disk(why: str) -> FullDiskError:
    """Make the error for a disk that is too small."""
    return FullDiskError("the data doesn't fit on the disk", why=why, fix="ask for a larger disk with `disk_size`")


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
