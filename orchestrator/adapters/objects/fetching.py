"""Copies shipped files into a folder. What names and checks them comes from a machine, and isn't trusted."""

from __future__ import annotations

import contextlib
import hashlib
import os
import posixpath
import shutil
import threading
from pathlib import Path
from typing import IO

from orchestrator.adapters.arrivals import has_content, link_at_home, place_at_home
from orchestrator.adapters.objects.bucket import Bucket
from orchestrator.adapters.objects.manifest import ShippedFile
from orchestrator.adapters.objects.tally import Tally
from orchestrator.core.tree import home_path

_CHUNK = 1 << 20
_PARTIAL = ".kedge-partial"
_SHOWN = 200
_LIMIT = 1 << 60
_CLOCK_STEP = 0.01  # seconds: file systems round times


class Fetching:
    """One copy of one run's results; `fetch` may be called from several threads.

    Attributes:
        problems: what couldn't be copied and why, one line each.
        left_out: path -> why, of links that lead out of the results.
        renamed: path -> the path that it has at home.
    """

    def __init__(self, bucket: Bucket, blobs: str, destination: Path, tally: Tally) -> None:
        self.problems: list[str] = []
        self.left_out: dict[str, str] = {}
        self.renamed: dict[str, str] = {}
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
        except (OSError, ValueError, OverflowError) as err:
            if file.link:
                self.left_out[file.path] = str(err)
            else:
                self.problems.append(f"{file.path[:_SHOWN]!r}: {err}")
        counted.reach(file.bytes)

    def tidy(self) -> None:
        """Remove what cut copies have left, once everything is whole."""
        if not self.problems:
            shutil.rmtree(self._partial, ignore_errors=True)
        with contextlib.suppress(OSError):
            self._partial.rmdir()

    def _fetch(self, file: ShippedFile, counted: _Counted) -> None:
        if file.path.partition("/")[0] == _PARTIAL:
            raise ValueError("its path is kedge's own")
        if file.link:
            link_at_home(self._destination, file.path, self._target_of(file))
            return
        if not 0 <= file.bytes < _LIMIT or not 0 <= file.mtime < _LIMIT:
            raise ValueError("its size or its time is none")
        target = place_at_home(self._destination, file.path)
        if _is_newer(target, file):
            return
        if not has_content(target, file.bytes, file.sha256):
            self._copy(file, target, counted)
        os.utime(target, (file.mtime, file.mtime), follow_symlinks=False)
        if (home := home_path(file.path)) != file.path:
            self.renamed[file.path] = home

    def _target_of(self, file: ShippedFile) -> str:
        """Return what a link is to hold; what it leads to may have another name here."""
        leads_to = posixpath.normpath(posixpath.join(posixpath.dirname(file.path), file.link))
        return home_path(file.link) if leads_to in self.renamed else file.link

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
                if out.tell() + len(chunk) > file.bytes:
                    # No more of it is written than the manifest has promised.
                    return ""
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
