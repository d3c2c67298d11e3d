"""Finds the files in a working folder that aren't sent with its code, without walking through millions of files.

It compares the folder with the list of sent files, whatever ignores the rest. So it works alike in work trees,
submodules and folders without git, and needs no more queries of git than sending does.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator
from pathlib import Path

from orchestrator.adapters.sync.worktree.listing import IGNORE_FILE, is_litter, list_code
from orchestrator.adapters.sync.worktree.repository import find_repository
from orchestrator.core.values.unsent import Unsent, UnsentPath

_SECONDS = 1.0
_MOST_ENTRIES = 50_000
_MOST_IN_A_FOLDER = 10_000
_KEPT = 20
# Caches that are sent unless something ignores them; if ignored, they aren't worth reporting.
_CACHES = frozenset({".cache", ".eggs", ".hypothesis"})
# Signs of a virtual environment, a conda environment, and a marked cache (https://bford.info/cachedir/).
_LITTER_SIGNS = frozenset({"pyvenv.cfg", "conda-meta", "CACHEDIR.TAG"})


def find_unsent(root: Path, elsewhere: Collection[str] = (), *, seconds: float = _SECONDS) -> Unsent | None:
    """Count what isn't sent, without environments and caches; None if everything is sent.

    Args:
        root: the working folder.
        elsewhere: paths in it that are sent in another way, such as data.
        seconds: the time limit; a count that isn't complete by then is shown as "more than".

    Raises:
        BadRequestError: its repository can't be read.
    """
    counter = _Counter(root, list_code(root), elsewhere, time.monotonic() + seconds)
    found = [path for path in counter.count() if path.files or not path.is_whole]
    if not found:
        return None
    return Unsent(
        by=_who_ignores(root),
        files=sum(path.files for path in found),
        bytes=sum(path.bytes for path in found),
        paths=tuple(sorted(found, key=lambda path: (-path.bytes, path.path))[:_KEPT]),
        is_whole=counter.is_whole and all(path.is_whole for path in found),
    )


def _who_ignores(root: Path) -> str:
    named = (["git"] if find_repository(root) else []) + ([IGNORE_FILE] if (root / IGNORE_FILE).exists() else [])
    return " or ".join(named) or "kedge"


class _Counter:
    """Walks through folders with sent files, and counts what is in the others."""

    def __init__(self, root: Path, sent: Collection[str], elsewhere: Collection[str], give_up_at: float) -> None:
        self._root = root
        self._sent = frozenset(sent)
        self._folders = {upper for path in sent for upper in _uppers(path)}
        self._elsewhere = frozenset(elsewhere)
        self._give_up_at = give_up_at
        self._entries_left = _MOST_ENTRIES
        self.is_whole = True

    def count(self) -> Iterator[UnsentPath]:
        """Yield files and folders; folders last, because they may take all the time."""
        unsent: list[str] = []
        waiting = [""]
        while waiting:
            prefix = waiting.pop()
            for entry in self._look(prefix):
                path = f"{prefix}{entry.name}"
                if not entry.is_dir(follow_symlinks=False):
                    if path not in self._sent:
                        yield UnsentPath(path=_readable(path), files=1, bytes=_size(entry))
                elif path in self._folders:
                    waiting.append(f"{path}/")
                else:
                    unsent.append(f"{path}/")
        for path in unsent:
            yield self._measure(path)

    def _measure(self, folder: str) -> UnsentPath:
        files = size = 0
        waiting = [folder]
        entries_left = _MOST_IN_A_FOLDER
        was_whole, self.is_whole = self.is_whole, True
        while waiting and entries_left > 0:
            prefix = waiting.pop()
            for entry in self._look(prefix):
                entries_left -= 1
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(f"{prefix}{entry.name}/")
                else:
                    files += 1
                    size += _size(entry)
        is_whole = self.is_whole and not waiting
        self.is_whole = was_whole and self.is_whole
        return UnsentPath(path=_readable(folder), files=files, bytes=size, is_whole=is_whole)

    def _look(self, prefix: str) -> Iterator[os.DirEntry[str]]:
        """Yield a folder's entries, without litter and what is sent in another way; nothing once the time is up."""
        try:
            entries = os.scandir(f"{self._root}/{prefix}")
        except OSError:
            return
        with entries:
            for entry in entries:
                if self._entries_left <= 0 or time.monotonic() > self._give_up_at:
                    self.is_whole = False
                    return
                self._entries_left -= 1
                if not self._is_left_out(prefix, entry):
                    yield entry

    def _is_left_out(self, prefix: str, entry: os.DirEntry[str]) -> bool:
        if is_litter(entry.name) or entry.name in _CACHES or f"{prefix}{entry.name}" in self._elsewhere:
            return True
        return entry.is_dir(follow_symlinks=False) and _is_environment(entry.path)


def _is_environment(folder: str) -> bool:
    return any(os.path.lexists(f"{folder}/{name}") for name in _LITTER_SIGNS)


def _size(entry: os.DirEntry[str]) -> int:
    try:
        return 0 if entry.is_symlink() else entry.stat(follow_symlinks=False).st_size
    except OSError:
        return 0


def _readable(path: str) -> str:
    """Replace bytes that aren't UTF-8, so that JSON can hold the path."""
    return path.encode(errors="backslashreplace").decode()


def _uppers(path: str) -> Iterator[str]:
    while path := path.rpartition("/")[0]:
        yield path
