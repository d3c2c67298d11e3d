"""The release that a difference builds on."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from . import releases
from .errors import NoBaseError
from .layout import Layout

Stamp = list[int]
"""Size, modification time in ns, executable (1) or not (0); a link has none."""


class Base:
    """A release whose files are taken over, as long as they are what was received."""

    def __init__(self, release: Path, content_hash: str, stamps: dict[str, Stamp]) -> None:
        self._hash = content_hash
        self._stamps = stamps
        self._original = releases.originals(release)

    def take(self, path: str, target: str) -> Stamp:
        """Put a file of the base at `target`.

        By a link: making thousands of new files takes seconds on a busy disk. The base's run may write to it in
        place: `releases.make_own` notices that, and ends the sharing, before a command starts on the new release.

        Raises:
            NoBaseError: it isn't what was received any more.
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
        """Copy where the file system has no hard links."""
        try:
            shutil.copy2(source, target, follow_symlinks=False)
        except OSError as err:
            raise no_base(self._hash) from err


def open_base(layout: Layout, content_hash: str) -> Base:
    """Open the release in place.

    Raises:
        NoBaseError: it is another one.
    """
    release = releases.current(layout)
    record = releases.read_record(release) if release else {}
    if release is None or record.get("hash") != content_hash:
        raise no_base(content_hash)
    return Base(release, content_hash, record["files"])


def no_base(content_hash: str) -> NoBaseError:
    """Say that a difference to this tree can't be used here."""
    return NoBaseError(f"no base {content_hash}", fix="send the whole tree")


def stamp(path: str) -> Stamp:
    """Return what tells later whether a file was changed."""
    status = os.lstat(path)
    return [status.st_size, status.st_mtime_ns, int(bool(status.st_mode & 0o100))]
