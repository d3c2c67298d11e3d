"""Unpacks an untrusted archive: no entry may leave the folder, and links are made last."""

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

from ...base.errors import AgentError
from ...base.tar_stream import DAMAGED, Member
from .draft import SourceDraft, require_inside, writing
from .transfer_progress import TransferProgress

_CHUNK_BYTES = 1 << 20
# zipfile raises more than its own errors: for empty names, truncated fields, and negative offsets.
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
    """One entry of an archive; `link` is a symbolic link's target, `twin` the file that a hard link refers to."""

    path: str
    mode: int
    is_folder: bool = False
    link: str = ""
    twin: str = ""
    content: IO[bytes] | None = None


def unpack(archive: Path, draft: SourceDraft, progress: TransferProgress) -> Path:
    """Unpack a .zip or a .tar, plain or compressed, into a new folder of the draft, and remove the archive.

    A refused archive is removed too, because the next attempt may download a better one.

    Raises:
        AgentError: it isn't an archive, is damaged or encrypted, doesn't fit on the disk, or has an entry that leaves
            the folder.
    """
    folder = draft.folder / "unpacked"
    shutil.rmtree(folder, ignore_errors=True)
    with writing():
        folder.mkdir()
    try:
        with _opened(archive, draft) as entries:
            _Unpacking(folder, progress).take(entries)
    except _DAMAGED as err:
        raise AgentError("the archive can't be unpacked", why=f"{type(err).__name__}: {err}") from err
    finally:
        archive.unlink()
    return folder


class _Unpacking:
    def __init__(self, folder: Path, progress: TransferProgress) -> None:
        self._folder = folder
        self._progress = progress
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
                self._progress.add(len(chunk))
        target.chmod(0o755 if mode & stat.S_IXUSR else 0o644)
        self._progress.add_file()

    def _make_links(self) -> None:
        """Make the links after all files, so that no file is written through one; then check their targets."""
        for path, target in self._links:
            if path.is_dir():
                raise AgentError(f"the archive has {path.name!r} both as a link and as a folder")
            with writing():
                path.unlink(missing_ok=True)
                path.symlink_to(target)
        inside = self._folder.resolve()
        for path, target in self._links:
            if Path(target).is_absolute() or not Path(os.path.realpath(path)).is_relative_to(inside):
                raise AgentError(
                    f"the archive has a link {path.relative_to(self._folder)} that leaves it, to {target}",
                    why="whoever made it could read or change anything on the machine",
                    fix="unpack it in `setup` if you trust it",
                )


@contextmanager
def _opened(archive: Path, draft: SourceDraft) -> Iterator[Iterator[_Entry]]:
    # Opened here, because tarfile doesn't close a file when it fails.
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
                f"{archive.name} is not an archive that can be unpacked",
                why="it is neither a .zip nor a .tar, .tar.gz, .tar.bz2 or .tar.xz, or it is damaged",
                fix="remove `unpack` from its address, and unpack it in `setup`",
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


def _tar_entries(tar: tarfile.TarFile, draft: SourceDraft) -> Iterator[_Entry]:
    for member in tar:
        # A sparse file takes no bytes in the archive, and all of them on the disk.
        draft.require_room(member.size)
        if not (member.isdir() or member.isfile() or member.issym() or member.islnk()):
            raise AgentError(f"the archive has {member.name!r}, which is neither a file, a folder nor a link")
        yield _Entry(
            member.name,
            member.mode,
            is_folder=member.isdir(),
            link=member.linkname if member.issym() else "",
            twin=member.linkname if member.islnk() else "",
            content=tar.extractfile(member) if member.isfile() else None,
        )
