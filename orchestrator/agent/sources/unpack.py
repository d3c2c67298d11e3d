"""Unpack an archive of somebody else's: nothing in it may lead out of the folder, and links are made last."""

from __future__ import annotations

import os
import shutil
import stat
import struct
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

from ..errors import AgentError
from ..tarstream import DAMAGED, Member
from .draft import Draft, require_inside, writing
from .tally import Tally

_CHUNK_BYTES = 1 << 20
# zipfile lets more through: of names that are empty, of fields that are cut, of places before the beginning.
_DAMAGED = (
    *DAMAGED,
    zipfile.BadZipFile,
    RuntimeError,
    NotImplementedError,
    IndexError,
    struct.error,
    OSError,
    MemoryError,
)


class _Entry(NamedTuple):
    """One thing in an archive; `link` is where a symbolic link leads, `twin` the file that a hard link repeats."""

    path: str
    mode: int
    is_folder: bool = False
    link: str = ""
    twin: str = ""
    content: IO[bytes] | None = None


def unpack(archive: Path, draft: Draft, tally: Tally) -> Path:
    """Unpack a .zip or a .tar, plain or compressed, into a new folder of the draft, and remove the archive.

    An archive that is refused is removed too: the next attempt may find a better one.

    Raises:
        AgentError: it is no archive, is damaged or encrypted, doesn't fit on the disk, or holds what leads out.
    """
    folder = draft.folder / "unpacked"
    shutil.rmtree(folder, ignore_errors=True)
    with writing():
        folder.mkdir()
    try:
        with _opened(archive, draft) as entries:
            _Unpacking(folder, tally).take(entries)
    except _DAMAGED as err:
        raise AgentError("the archive can't be unpacked", why=f"{type(err).__name__}: {err}") from err
    finally:
        archive.unlink()
    return folder


class _Unpacking:
    def __init__(self, folder: Path, tally: Tally) -> None:
        self._folder = folder
        self._tally = tally
        self._links: list[tuple[Path, str]] = []

    def take(self, entries: Iterator[_Entry]) -> None:
        for entry in entries:
            path = entry.path.rstrip("/").removeprefix("./")
            if path in ("", "."):
                continue
            require_inside(path)
            with writing():
                self._make(entry, self._folder / path)
        self._make_links()

    def _make(self, entry: _Entry, target: Path) -> None:
        (target if entry.is_folder else target.parent).mkdir(parents=True, exist_ok=True)
        if entry.link:
            self._links.append((target, entry.link))
        elif entry.twin:
            require_inside(entry.twin.removeprefix("./"))
            shutil.copy2(self._folder / entry.twin, target)
        elif entry.content is not None:
            self._write(entry.content, target, entry.mode)

    def _write(self, content: IO[bytes], target: Path, mode: int) -> None:
        with target.open("wb") as stream:
            while chunk := content.read(_CHUNK_BYTES):
                stream.write(chunk)
                self._tally.add(len(chunk))
        target.chmod(0o755 if mode & stat.S_IXUSR else 0o644)
        self._tally.add_file()

    def _make_links(self) -> None:
        """Make the links when all files are there, so that none was written through one; then see where they lead."""
        for path, target in self._links:
            if path.is_dir():
                raise AgentError(f"the archive holds {path.name!r} both as a link and as a folder")
            with writing():
                path.unlink(missing_ok=True)
                path.symlink_to(target)
        inside = self._folder.resolve()
        for path, target in self._links:
            if Path(target).is_absolute() or not Path(os.path.realpath(path)).is_relative_to(inside):
                raise AgentError(
                    f"the archive holds a link {path.relative_to(self._folder)} that leads out of it, to {target}",
                    why="whoever made it could read or change anything on the machine",
                    fix="unpack it in `setup` if you trust it",
                )


@contextmanager
def _opened(archive: Path, draft: Draft) -> Iterator[Iterator[_Entry]]:
    # Opened here, because tarfile leaves files open that it fails on.
    with archive.open("rb") as stream:
        if _is_tar(stream):
            with tarfile.open(fileobj=stream, tarinfo=Member) as tar:
                yield _tar_entries(tar, draft)
        elif zipfile.is_zipfile(stream):
            with zipfile.ZipFile(stream) as packed:
                draft.require_room(sum(info.file_size for info in packed.infolist()))
                yield _zip_entries(packed)
        else:
            raise AgentError(
                f"{archive.name} is no archive that can be unpacked",
                why="it is neither a .zip nor a .tar, .tar.gz, .tar.bz2 or .tar.xz, or it is damaged",
                fix="leave `unpack` out of its address, and unpack it in `setup`",
            )


def _is_tar(stream: IO[bytes]) -> bool:
    try:
        tarfile.open(fileobj=stream, tarinfo=Member).close()
    except _DAMAGED:
        return False
    finally:
        stream.seek(0)
    return True


def _zip_entries(packed: zipfile.ZipFile) -> Iterator[_Entry]:
    for info in packed.infolist():
        mode = info.external_attr >> 16
        if info.is_dir():
            yield _Entry(info.filename, mode, is_folder=True)
        elif stat.S_ISLNK(mode):
            yield _Entry(info.filename, mode, link=packed.read(info).decode(errors="surrogateescape"))
        else:
            with packed.open(info) as content:
                yield _Entry(info.filename, mode, content=content)


def _tar_entries(tar: tarfile.TarFile, draft: Draft) -> Iterator[_Entry]:
    for member in tar:
        # A hole in a file needs no bytes of the archive, and all of them of the disk.
        draft.require_room(member.size)
        if not (member.isdir() or member.isfile() or member.issym() or member.islnk()):
            raise AgentError(f"the archive holds {member.name!r}, which is neither a file, a folder nor a link")
        yield _Entry(
            member.name,
            member.mode,
            is_folder=member.isdir(),
            link=member.linkname if member.issym() else "",
            twin=member.linkname if member.islnk() else "",
            content=tar.extractfile(member) if member.isfile() else None,
        )
