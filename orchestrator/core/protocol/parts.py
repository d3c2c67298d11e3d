"""Makes one tree of the results of a run's several machines.

Each machine lists what it has written itself. Files with different paths make one tree: so the shards of a checkpoint,
written by several machines, become whole. Where machines have the same path with other content, that of the lowest rank
stays there, and the others' are at `nodes/RANK/PATH`. The agent's half is orchestrator/agent/results/parts.py;
tests/contract/test_parts.py compares both.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.core.protocol.results import ResultFile
from orchestrator.core.protocol.tree import home_path, upper_folders

NODES = "nodes"
"""The folder of what machines have at the same path as another one."""
_OTHER_LINK = "another machine has something else there, and its target isn't in the same folder"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One machine's part of the whole.

    Attributes:
        files: those at their own paths; what another machine has, too, is in its part only.
        apart: those that go to the machine's folder.
        left_out: path -> why, for links that would lead nowhere in the machine's folder.
    """

    files: tuple[ResultFile, ...] = ()
    apart: tuple[ResultFile, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)


def folder_of(rank: int) -> str:
    """Return the folder of what a machine has at the same path as another one."""
    return f"{NODES}/{rank}"


def divide(lists: Mapping[int, Sequence[ResultFile]]) -> dict[int, Part]:
    """Decide where the results of each machine go, by its rank; the lists come from machines, and may say anything."""
    tree = _Tree()
    parts = {}
    for rank in sorted(lists):
        files: list[ResultFile] = []
        apart: list[ResultFile] = []
        for file in lists[rank]:
            if not tree.has(file):
                (files if tree.has_room(file.path) else apart).append(file)
        # Only now: a machine's own list is a tree already.
        tree.add(files)
        parts[rank] = _part(files, apart)
    return parts


def _part(files: Sequence[ResultFile], apart: Sequence[ResultFile]) -> Part:
    there = {file.path for file in apart}
    there |= {folder for path in there for folder in upper_folders(path)}
    lost = [file.path for file in apart if file.link and _leads_to(file) not in there]
    kept = tuple(file for file in apart if file.path not in lost)
    return Part(files=tuple(files), apart=kept, left_out=dict.fromkeys(lost, _OTHER_LINK))


def _leads_to(file: ResultFile) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(file.path), file.link))


class _Tree:
    """What the machines so far have put at its own path."""

    def __init__(self) -> None:
        self._files: dict[str, ResultFile] = {}
        self._taken: set[str] = set()
        self._folders: set[str] = set()

    def has(self, file: ResultFile) -> bool:
        """Tell whether the same content, or the same link, is there."""
        there = self._files.get(file.path)
        return there is not None and (there.sha256, there.link) == (file.sha256, file.link)

    def has_room(self, path: str) -> bool:
        """Tell whether a path is free, as files are named on the laptop, and nothing is in the way of its folders."""
        names = {path, home_path(path)}
        is_free = self._folders.isdisjoint(names) and self._taken.isdisjoint(names.union(upper_folders(path)))
        return is_free and path.partition("/")[0] != NODES

    def add(self, files: Iterable[ResultFile]) -> None:
        """Add files, and their folders."""
        for file in files:
            self._files[file.path] = file
            self._taken |= {file.path, home_path(file.path)}
            self._folders.update(upper_folders(file.path))
