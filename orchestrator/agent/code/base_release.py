"""The base release of a difference: unchanged files are taken from it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from ..base.errors import NoBaseError
from ..base.layout import Layout
from . import releases

Stamp = list[int]
"""Size, modification time in ns, executable (1) or not (0); links have no stamp."""


class Base:
    """A release from which files are reused, as long as they are unchanged since they were received."""

    def __init__(self, release: Path, content_hash: str, stamps: dict[str, Stamp]) -> None:
        self._hash = content_hash
        self._stamps = stamps
        self._original = releases.originals(release)

    def take(self, path: str, target: str) -> Stamp:
        """Place a file of the base at `target`.

        It is a hard link, because creating thousands of files takes seconds on a busy disk. The base's run may write
        to the file in place: `releases.unshare_files` detects that, and breaks the links before a command starts on
        the new release.

        Raises:
            NoBaseError: it was changed since it was received.
        """
        source = self._original(path)
        try:
            os.link(source, target, follow_symlinks=False)
        except OSError:
            self._copy(source, target)
        found = stamp(target)
        if found != self._stamps.get(path):
            raise no_base(self._hash)
        return found

    def _copy(self, source: str, target: str) -> None:
        """Copy a file, for file systems without hard links."""
        try:
            shutil.copy2(source, target, follow_symlinks=False)
        except OSError as err:
            raise no_base(self._hash) from err


def open_base(layout: Layout, content_hash: str) -> Base:
    """Open the current release as base.

    Raises:
        NoBaseError: it has another content hash.
    """
    release = releases.current(layout)
    record = releases.read_record(release) if release else {}
    if release is None or record.get("hash") != content_hash:
        raise no_base(content_hash)
    return Base(release, content_hash, record["files"])


def no_base(content_hash: str) -> NoBaseError:
    """Make the error for a difference to a tree that isn't here."""
    return NoBaseError(f"no base {content_hash}", fix="send the whole tree")


def stamp(path: str) -> Stamp:
    """Return a file's stamp, by which a change is detected later."""
    status = os.lstat(path)
    return [status.st_size, status.st_mtime_ns, int(bool(status.st_mode & 0o100))]
