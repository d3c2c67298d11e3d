"""Finds the files that a command wrote into its working folder: new ones, and ones changed since they were sent.

Environments, caches and version control are left out. Links are not followed, which leaves out outputs, checkpoints
and data, because they are links in a working folder (links.py).
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from .base_release import Stamp
from .releases import read_record

_MOST_ENTRIES = 200_000
_LITTER_NAMES = frozenset(
    {
        ".DS_Store",
        ".bzr",
        ".cache",
        ".conda",
        ".eggs",
        ".git",
        ".hg",
        ".hypothesis",
        ".ipynb_checkpoints",
        ".mypy_cache",
        ".nox",
        ".npm",
        ".pixi",
        ".pytest_cache",
        ".ruff_cache",
        ".svn",
        ".tox",
        ".venv",
        "__pycache__",
        "__pypackages__",
        "node_modules",
        "site-packages",
    }
)
_LITTER_SUFFIXES = (".pyc", ".pyo", ".swp", ".egg-info", ".dist-info")
# Files that mark a virtual environment, a conda environment, and a cache (https://bford.info/cachedir/).
_LITTER_SIGNS = frozenset({"pyvenv.cfg", "conda-meta", "CACHEDIR.TAG"})


class ChangedFile(NamedTuple):
    """A changed file; its path is relative to the working folder, with bytes that aren't UTF-8 as lone surrogates."""

    path: str
    bytes: int
    mtime_ns: int


class Findings(NamedTuple):
    """The changed files.

    Attributes:
        files: newest first.
        links: new symbolic links; path -> target.
        is_whole: the whole folder was scanned; False if it has too many files for the time.
    """

    files: list[ChangedFile]
    links: dict[str, str]
    is_whole: bool


NOTHING = Findings([], {}, is_whole=True)


def find_changed(release: Path, give_up_at: float) -> Findings:
    """List the files that a command changed in a release.

    Args:
        release: the working folder.
        give_up_at: when to stop looking, in Unix seconds.
    """
    sent: Mapping[str, Stamp] = read_record(release).get("files", {})
    files: list[ChangedFile] = []
    links: dict[str, str] = {}
    entries = 0
    for path, entry in _walk(str(release)):
        entries += 1
        if entries > _MOST_ENTRIES or time.time() > give_up_at:
            return Findings(_newest_first(files), links, is_whole=False)
        try:
            if entry.is_symlink():
                links[path] = os.readlink(entry.path)  # noqa: PTH115 - bytes that are no UTF-8 must stay what they are
                continue
            status = entry.stat(follow_symlinks=False)
        except OSError:
            # Removed at this moment.
            continue
        # Anything else, such as a socket, has no content to keep.
        if stat.S_ISREG(status.st_mode) and sent.get(path, [])[:2] != [status.st_size, status.st_mtime_ns]:
            files.append(ChangedFile(path, status.st_size, status.st_mtime_ns))
    return Findings(_newest_first(files), links, is_whole=True)


def _newest_first(files: list[ChangedFile]) -> list[ChangedFile]:
    return sorted(files, key=lambda file: (-file.mtime_ns, file.path))


def _walk(root: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Yield all entries that aren't folders, with their paths; unreadable folders are left out."""
    waiting = [""]
    while waiting:
        prefix = waiting.pop()
        entries = _entries(f"{root}/{prefix}")
        if prefix and any(entry.name in _LITTER_SIGNS for entry in entries):
            continue
        for entry in entries:
            if entry.name in _LITTER_NAMES or entry.name.endswith(_LITTER_SUFFIXES):
                continue
            if entry.is_dir(follow_symlinks=False):
                waiting.append(f"{prefix}{entry.name}/")
            else:
                yield f"{prefix}{entry.name}", entry


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as found:
            return list(found)
    except OSError:
        return []
