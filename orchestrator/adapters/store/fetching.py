"""Copies results from the object store into a folder. A machine chose their paths and checksums, so none is trusted."""

from __future__ import annotations

import contextlib
import hashlib
import os
import posixpath
import shutil
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from orchestrator.adapters.incoming.arrivals import has_content, place_file, place_link
from orchestrator.adapters.store.manifest import UploadedFile
from orchestrator.adapters.store.object_store import ObjectStore
from orchestrator.adapters.store.transfer import TransferProgress
from orchestrator.core.protocol.tree import home_path

_CHUNK = 1 << 20
_PARTIAL = ".kedge-partial"
_SHOWN = 200
_LIMIT = 1 << 60
_CLOCK_STEP = 0.01  # seconds, because file systems round times


class Fetching:
    """Copies one run's results; `fetch` may be called from several threads.

    Attributes:
        destination: the folder.
        problems: one line for each file that couldn't be copied, with the reason, by its path.
        has_missed: whether some content was missing: its machine may have uploaded a newer version meanwhile.
        left_out: path -> reason, for links that were left out because they lead out of the results.
        renamed: path -> its path on the laptop.
    """

    def __init__(self, store: ObjectStore, blobs: str, destination: Path, progress: TransferProgress) -> None:
        self.problems: dict[str, str] = {}
        self.has_missed = False
        self.left_out: dict[str, str] = {}
        self.renamed: dict[str, str] = {}
        self._store = store
        self._blobs = blobs
        self.destination = destination
        self._partial = destination / _PARTIAL
        self._progress = progress
        self._making = threading.Lock()

    def fetch(self, file: UploadedFile) -> None:
        """Copy one file, or record why it can't be copied.

        Raises:
            KedgeError: the store can't be used.
        """
        counted = _Counted(self._progress)
        self.problems.pop(file.path, None)
        try:
            self._fetch(file, counted)
        except (OSError, ValueError, OverflowError) as err:
            if file.link:
                self.left_out[file.path] = str(err)
            else:
                self.problems[file.path] = f"{file.path[:_SHOWN]!r}: {err}"
        counted.reach(file.bytes)

    def forget_all_but(self, files: Iterable[UploadedFile]) -> None:
        """Forget the problems with files that a newer list doesn't have, and that contents were missing."""
        paths = {file.path for file in files}
        self.problems = {path: problem for path, problem in self.problems.items() if path in paths}
        self.has_missed = False

    def tidy(self) -> None:
        """Remove the partial files of interrupted copies, if every file was copied."""
        if not self.problems:
            shutil.rmtree(self._partial, ignore_errors=True)
        with contextlib.suppress(OSError):
            self._partial.rmdir()

    def _fetch(self, file: UploadedFile, counted: _Counted) -> None:
        if file.path.partition("/")[0] == _PARTIAL:
            raise ValueError("its path is kedge's own")
        if file.link:
            place_link(self.destination, file.path, self._target_of(file))
            return
        if not 0 <= file.bytes < _LIMIT or not 0 <= file.mtime < _LIMIT:
            raise ValueError("its size or its time is invalid")
        target = place_file(self.destination, file.path)
        if _is_newer(target, file):
            return
        if not has_content(target, file.bytes, file.sha256):
            self._copy(file, target, counted)
        os.utime(target, (file.mtime, file.mtime), follow_symlinks=False)
        if (home := home_path(file.path)) != file.path:
            self.renamed[file.path] = home

    def _target_of(self, file: UploadedFile) -> str:
        """Return a link's target on the laptop, which may have been renamed."""
        leads_to = posixpath.normpath(posixpath.join(posixpath.dirname(file.path), file.link))
        return home_path(file.link) if leads_to in self.renamed else file.link

    def _copy(self, file: UploadedFile, target: Path, counted: _Counted) -> None:
        if not file.has_content:
            raise ValueError(f"{file.sha256!r} is not a checksum")
        aside = self._aside(file)
        try:
            sha256 = self._download(file, aside, counted)
        except FileNotFoundError:
            aside.unlink()
            self.has_missed = True
            raise ValueError(f"its content, blob {file.sha256}, is missing") from None
        if sha256 != file.sha256:
            aside.unlink()
            raise ValueError(f"its content, blob {file.sha256}, is damaged")
        aside.replace(target)

    def _aside(self, file: UploadedFile) -> Path:
        """Return the path of a file's partial content; a later copy finds it there and resumes."""
        with self._making:
            # If it is a link, from the results, kedge would write outside the folder.
            if self._partial.is_symlink():
                self._partial.unlink()
            self._partial.mkdir(parents=True, exist_ok=True)
        return self._partial / hashlib.sha256(f"{file.sha256} {file.path}".encode(errors="surrogateescape")).hexdigest()

    def _download(self, file: UploadedFile, aside: Path, counted: _Counted) -> str:
        """Append the missing part of a content, and return the checksum of the whole."""
        digest = hashlib.sha256()
        with _opened(aside) as out:
            while had := out.read(_CHUNK):
                digest.update(had)
            counted.add(out.tell())
            missing = out.tell() < file.bytes or not file.bytes
            for chunk in self._store.stream(self._blobs + file.sha256, out.tell()) if missing else ():
                if out.tell() + len(chunk) > file.bytes:
                    # Never write more than the manifest says.
                    return ""
                digest.update(chunk)
                out.write(chunk)
                counted.add(len(chunk))
            out.flush()
            os.fsync(out.fileno())
        return digest.hexdigest()


class _Counted:
    """Counts one file's bytes in the progress: in the end its whole size, even if it failed."""

    def __init__(self, progress: TransferProgress) -> None:
        self._progress = progress
        self._done = 0

    def add(self, count: int) -> None:
        self._done += count
        self._progress.add(count)

    def reach(self, size: int) -> None:
        self._progress.add(size - self._done)


def _opened(aside: Path) -> IO[bytes]:
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.fdopen(os.open(aside, flags, 0o644), "r+b")


def _is_newer(target: Path, file: UploadedFile) -> bool:
    """Tell whether the laptop's file is newer: it may have been fetched from the machine after the upload."""
    return target.is_file() and not target.is_symlink() and target.stat().st_mtime > file.mtime + _CLOCK_STEP
