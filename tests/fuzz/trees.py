"""Promises about folders: files made in them stay in them, and nothing around them changes."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ABSOLUTE = "/tmp/kedge-fuzz-outside"
"""What mutations write in place of an absolute path; it must never be created."""

CANARY = "canary"
_SPECIAL = stat.S_ISUID | stat.S_ISGID | stat.S_ISVTX


@contextmanager
def guarded(folder: Path, *filled: str) -> Iterator[None]:
    """Require that an input changes only the folders that it may fill, and nothing around them."""
    canary = folder / CANARY
    canary.write_text("alive")
    canary.chmod(0o600)
    # An old time: copies skip files that are newer.
    os.utime(canary, (1, 1))
    beside = {entry.name for entry in folder.parent.iterdir()}
    try:
        yield
    finally:
        assert canary.read_text() == "alive"
        assert stat.S_IMODE(canary.lstat().st_mode) == stat.S_IRUSR | stat.S_IWUSR
        here = {entry.name for entry in folder.iterdir()}
        assert here <= {CANARY, *filled}, f"outside: {here - {CANARY, *filled}}"
        around = {entry.name for entry in folder.parent.iterdir()}
        assert around == beside, f"outside: {around ^ beside}"
        assert not os.path.lexists(ABSOLUTE)


def require_inside(folder: Path) -> None:
    """Require that no link leads out of a folder, and that nothing in it is setuid, a pipe or a device."""
    top = os.path.realpath(folder)
    for path in walk(folder):
        mode = os.lstat(path).st_mode
        assert stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode), path
        assert not mode & _SPECIAL, f"{path} is {stat.filemode(mode)}"
        if stat.S_ISLNK(mode):
            leads_to = os.path.realpath(path)
            assert leads_to == top or leads_to.startswith(f"{top}/"), f"{path} leads to {leads_to}"


def describe(folder: Path) -> dict[str, tuple[int, str]]:
    """Map each path in a folder to its mode, and its size or its link's target."""
    found = {}
    for path in walk(folder):
        status = os.lstat(path)
        is_link = stat.S_ISLNK(status.st_mode)
        size = 0 if stat.S_ISDIR(status.st_mode) else status.st_size
        found[os.path.relpath(path, folder)] = (status.st_mode, os.readlink(path) if is_link else str(size))  # noqa: PTH115
    return found


def walk(folder: Path) -> Iterator[str]:
    """Yield all paths in a folder, as text: names may be invalid UTF-8."""
    for here, folders, files in os.walk(folder):
        yield from (f"{here}/{name}" for name in [*folders, *files])
