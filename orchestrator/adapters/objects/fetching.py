"""Copies shipped files into a folder. What names and checks them comes from a machine, and isn't trusted."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import threading
from pathlib import Path, PurePosixPath
from typing import IO

from orchestrator.adapters.objects.bucket import Bucket
from orchestrator.adapters.objects.manifest import ShippedFile
from orchestrator.adapters.objects.tally import Tally

_CHUNK = 1 << 20
_PARTIAL = ".kedge-partial"
_CLOCK_STEP = 0.01  # seconds: file systems round times


class Fetching:
    """One copy of one run's results; `fetch` may be called from several threads.

    Attributes:
        problems: what couldn't be copied and why, one line each.
    """

    def __init__(self, bucket: Bucket, blobs: str, destination: Path, tally: Tally) -> None:
        self.problems: list[str] = []
        self._bucket = bucket
        self._blobs = blobs
        self._destination = destination
        self._partial = destination / _PARTIAL
        self._tally = tally
        self._making = threading.Lock()

    def fetch(self, file: ShippedFile) -> None:
        """Copy one file, or note why it can't be.

        Raises:
            KedgeError: the store can't be used.
        """
        counted = _Counted(self._tally)
        try:
            self._fetch(file, counted)
        except (OSError, ValueError) as err:
            self.problems.append(f"{file.path!r}: {err}")
        counted.reach(file.bytes)

    def tidy(self) -> None:
        """Remove what cut copies have left, once everything is whole."""
        if not self.problems:
            shutil.rmtree(self._partial, ignore_errors=True)
        with contextlib.suppress(OSError):
            self._partial.rmdir()

    def _fetch(self, file: ShippedFile, counted: _Counted) -> None:
        target = self._target(file)
        if _is_newer(target, file):
            return
        if file.link:
            self._link(file, target)
            return
        if not _is_there(file, target):
            self._copy(file, target, counted)
        os.utime(target, (file.mtime, file.mtime))

    def _target(self, file: ShippedFile) -> Path:
        parts = PurePosixPath(file.path).parts
        if not parts or parts[0] in {"/", _PARTIAL} or ".." in parts or "\0" in file.path:
            raise ValueError("its path leads out of the results")
        target = self._destination.joinpath(*parts)
        if not self._is_inside(target.parent):
            raise ValueError("a link leads it out of the results")
        return target

    def _is_inside(self, path: Path) -> bool:
        return path.resolve().is_relative_to(self._destination.resolve())

    def _link(self, file: ShippedFile, target: Path) -> None:
        """Make a link again that leads to another of the results."""
        if not self._is_inside(target.parent / file.link):
            raise ValueError("it is a link that leads out of the results")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        target.symlink_to(file.link)

    def _copy(self, file: ShippedFile, target: Path, counted: _Counted) -> None:
        if not file.has_content:
            raise ValueError(f"{file.sha256!r} is no checksum")
        aside = self._aside(file)
        try:
            sha256 = self._download(file, aside, counted)
        except FileNotFoundError:
            aside.unlink()
            raise ValueError(f"its content, blob {file.sha256}, is missing") from None
        if sha256 != file.sha256:
            aside.unlink()
            raise ValueError(f"its content, blob {file.sha256}, is damaged")
        target.parent.mkdir(parents=True, exist_ok=True)
        aside.replace(target)

    def _aside(self, file: ShippedFile) -> Path:
        """Name the place of a content that isn't whole yet; the same in a later copy, which goes on there."""
        with self._making:
            # One that came here as a link would lead what is written elsewhere.
            if self._partial.is_symlink():
                self._partial.unlink()
            self._partial.mkdir(parents=True, exist_ok=True)
        return self._partial / hashlib.sha256(f"{file.sha256} {file.path}".encode(errors="surrogateescape")).hexdigest()

    def _download(self, file: ShippedFile, aside: Path, counted: _Counted) -> str:
        """Append what is missing of a content, and return the checksum of all of it."""
        digest = hashlib.sha256()
        with _opened(aside) as out:
            while had := out.read(_CHUNK):
                digest.update(had)
            counted.add(out.tell())
            missing = out.tell() < file.bytes or not file.bytes
            for chunk in self._bucket.stream(self._blobs + file.sha256, out.tell()) if missing else ():
                digest.update(chunk)
                out.write(chunk)
                counted.add(len(chunk))
            out.flush()
            os.fsync(out.fileno())
        return digest.hexdigest()


class _Counted:
    """What one file has contributed to the tally: its size in the end, whatever happens to it."""

    def __init__(self, tally: Tally) -> None:
        self._tally = tally
        self._done = 0

    def add(self, count: int) -> None:
        self._done += count
        self._tally.add(count)

    def reach(self, size: int) -> None:
        self._tally.add(size - self._done)


def _opened(aside: Path) -> IO[bytes]:
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.fdopen(os.open(aside, flags, 0o644), "r+b")


def _is_newer(target: Path, file: ShippedFile) -> bool:
    """What was fetched from the machine itself may be newer than what it had shipped by then."""
    return target.is_file() and not target.is_symlink() and target.stat().st_mtime > file.mtime + _CLOCK_STEP


def _is_there(file: ShippedFile, target: Path) -> bool:
    if target.is_symlink() or not target.is_file() or target.stat().st_size != file.bytes:
        return False
    with target.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest() == file.sha256
