"""Promises about folders: what is made in them stays in them, and around them nothing changes."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ABSOLUTE = "/tmp/kedge-fuzz-outside"
"""What mutations write where an absolute path may be taken; it must never come to be."""

CANARY = "canary"
_SPECIAL = stat.S_ISUID | stat.S_ISGID | stat.S_ISVTX


@contextmanager
def guarded(folder: Path, *filled: str) -> Iterator[None]:
    """Require that an input changes nothing in a folder but what it may fill, nor around that folder."""
    canary = folder / CANARY
    canary.write_text("alive")
    canary.chmod(0o600)
    # Old: what is newer than a copy is left as it is.
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
    """No link leads out of a folder, and nothing in it is setuid, a pipe or a device."""
    top = os.path.realpath(folder)
    for path in walk(folder):
        mode = os.lstat(path).st_mode
        assert stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode), path
        assert not mode & _SPECIAL, f"{path} is {stat.filemode(mode)}"
        if stat.S_ISLNK(mode):
            leads_to = os.path.realpath(path)
            assert leads_to == top or leads_to.startswith(f"{top}/"), f"{path} leads to {leads_to}"


def describe(folder: Path) -> dict[str, tuple[int, str]]:
    """Return path -> mode, and size or what a link holds, of all that a folder holds."""
    found = {}
    for path in walk(folder):
        status = os.lstat(path)
        is_link = stat.S_ISLNK(status.st_mode)
        size = 0 if stat.S_ISDIR(status.st_mode) else status.st_size
        found[os.path.relpath(path, folder)] = (status.st_mode, os.readlink(path) if is_link else str(size))  # noqa: PTH115
    return found


def walk(folder: Path) -> Iterator[str]:
    """Yield all that a folder holds, as text: names may be no UTF-8."""
    for here, folders, files in os.walk(folder):
        yield from (f"{here}/{name}" for name in [*folders, *files])
