"""The folder that mirrors a data set. Files appear atomically, and nothing is written through a link."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import threading
from collections.abc import Iterable
from pathlib import Path

from ..base.errors import AgentError
from .index import OWN, DataFile, Piece

_CHUNK_BYTES = 1 << 20


class DataFolder:
    """One data set's folder.

    Args:
        root: the folder.
        own: kedge's own folder on the same disk, for incomplete files.
    """

    def __init__(self, root: Path, own: Path) -> None:
        self._root = root
        self._drafts = own / "partial"
        self._made: set[str] = set()
        self._making = threading.Lock()

    def prepare(self) -> None:
        """Create the folders."""
        self._root.mkdir(parents=True, exist_ok=True)
        for folder in (self._drafts.parent, self._drafts):
            if folder.is_symlink():
                folder.unlink()
            folder.mkdir(exist_ok=True)

    def has(self, file: DataFile) -> bool:
        """Whether a file is there, judged by its stat; corrects its mode."""
        path = self._root / file.path
        try:
            found = path.lstat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        is_there = stat.S_ISREG(found.st_mode) and (found.st_size, found.st_mtime_ns) == (file.bytes, file.mtime_ns)
        if is_there and stat.S_IMODE(found.st_mode) != file.mode:
            path.chmod(file.mode)
        return is_there

    def draft(self, file: DataFile) -> FileDraft:
        """Start a file, or resume an incomplete one."""
        name = hashlib.sha256(repr((file.path, file.pieces)).encode(errors="surrogateescape")).hexdigest()
        return FileDraft(self._drafts / name, file)

    def finish(self, draft: FileDraft) -> None:
        """Move a complete file to its path.

        Raises:
            AgentError: a folder that isn't empty is in the way.
        """
        target = self._make_room(draft.file.path)
        draft.path.chmod(draft.file.mode)
        os.utime(draft.path, ns=(draft.file.mtime_ns, draft.file.mtime_ns))
        draft.path.replace(target)

    def link(self, path: str, target: str) -> None:
        """Make a link, unless it exists.

        Raises:
            AgentError: a folder that isn't empty is in the way.
        """
        place = self._root / path
        if place.is_symlink() and os.readlink(place) == target:  # noqa: PTH115 - bytes that are no UTF-8
            return
        place = self._make_room(path)
        place.unlink(missing_ok=True)
        place.symlink_to(target)

    def make(self, path: str) -> None:
        """Make a folder, unless it exists."""
        self._make_folder(path)

    def remove(self, paths: Iterable[str]) -> None:
        """Remove files, links and empty folders, then the parent folders that have become empty."""
        for path in sorted(paths, reverse=True):
            if self._has_real_parents(path):
                place = self._root / path
                with contextlib.suppress(OSError):
                    place.rmdir() if place.is_dir() and not place.is_symlink() else place.unlink()
                self._prune(path.rpartition("/")[0])

    def tidy(self) -> None:
        """Remove the incomplete files of interrupted pulls, once everything is complete."""
        shutil.rmtree(self._drafts, ignore_errors=True)

    def _has_real_parents(self, path: str) -> bool:
        parts = path.split("/")[:-1]
        return not any((self._root / "/".join(parts[: n + 1])).is_symlink() for n in range(len(parts)))

    def _prune(self, path: str) -> None:
        with contextlib.suppress(OSError):
            while path:
                (self._root / path).rmdir()
                path = path.rpartition("/")[0]

    def _make_room(self, path: str) -> Path:
        self._make_folder(path.rpartition("/")[0])
        target = self._root / path
        if target.is_dir() and not target.is_symlink():
            try:
                target.rmdir()
            except OSError as err:
                raise AgentError(
                    f"a folder is in the way of {str(target)!r}", why=str(err), fix="move what it holds elsewhere"
                ) from err
        return target

    def _make_folder(self, path: str) -> None:
        if not path or path in self._made:
            return
        self._make_folder(path.rpartition("/")[0])
        place = self._root / path
        with self._making:
            # A link would redirect writes; a file may be from an earlier version of the data set.
            if place.is_symlink() or (place.exists() and not place.is_dir()):
                place.unlink()
            place.mkdir(exist_ok=True)
            self._made.add(path)


class FileDraft:
    """An incomplete file."""

    def __init__(self, path: Path, file: DataFile) -> None:
        self.path = path
        self.file = file
        self._missing = len(file.pieces)
        self._lock = threading.Lock()

    def missing(self) -> list[tuple[int, Piece]]:
        """List the pieces that no earlier pull has written, with their offsets in the file."""
        content = self._open()
        try:
            starts = _starts(self.file.pieces)
            missing = [row for row in starts if len(starts) == 1 or _digest(content, *row) != row[1].sha256]
        finally:
            os.close(content)
        self._missing = len(missing)
        return missing

    def write(self, start: int, content: memoryview) -> bool:
        """Write one piece at its offset; return whether it was the last missing one. Thread-safe."""
        file = self._open()
        try:
            while content:
                written = os.pwrite(file, content, start)
                start, content = start + written, content[written:]
        finally:
            os.close(file)
        with self._lock:
            self._missing -= 1
            return self._missing == 0

    def _open(self) -> int:
        return os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)


def own_folder(target: Path, *, is_file: bool) -> Path:
    """Return kedge's own folder for a target: inside it, so that it moves with a volume, or beside a single file."""
    return target.with_name(f".{target.name}{OWN}") if is_file else target / OWN


def _starts(pieces: tuple[Piece, ...]) -> list[tuple[int, Piece]]:
    reached = 0
    starts = []
    for piece in pieces:
        starts.append((reached, piece))
        reached += piece.bytes
    return starts


def _digest(file: int, start: int, piece: Piece) -> str:
    digest = hashlib.sha256()
    end = start + piece.bytes
    while start < end and (chunk := os.pread(file, min(_CHUNK_BYTES, end - start), start)):
        start += len(chunk)
        digest.update(chunk)
    return digest.hexdigest()
