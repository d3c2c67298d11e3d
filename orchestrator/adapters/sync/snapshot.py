"""Snapshots of a tree of the laptop's files, by stat alone, for both code and data sets.

The walks decide what is in a tree (`worktree/listing` for code, `data_tree` for data). A snapshot records the files'
state, and for which of them a later comparison of stats is reliable.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum, auto
from typing import NamedTuple

import xxhash

from orchestrator.core.ports import Clock

# A file that is written twice within one tick of the file system's clock has the same stat both times, so a file that
# is younger than this is read again next time. Two seconds is FAT's tick, the coarsest in use.
_SETTLED = timedelta(seconds=2)

Signature = tuple[int, int, int, int]
"""mtime_ns, ctime_ns, size and inode: while they are unchanged, so is the content."""


class Kind(Enum):
    """The kinds of items in a tree."""

    FILE = auto()
    EMPTY_FOLDER = auto()
    LINK = auto()


class Item(NamedTuple):
    """An item of a tree: a file, a link or an empty folder.

    Attributes:
        path: in the tree.
        source: on the laptop.
        link: a link's target, as it is sent.
        is_copied: it replaces a link that would be broken on another computer.
        status: a file's stat, if the walk has it already.
    """

    kind: Kind
    path: str
    source: str
    link: str = ""
    is_copied: bool = False
    status: os.stat_result | None = None


class LocalFile(NamedTuple):
    """A file on the laptop. A tuple, because every command creates thousands.

    Attributes:
        path: in the tree.
        source: on the laptop.
        mode: the permission bits.
    """

    path: str
    source: str
    bytes: int
    mode: int
    mtime_ns: int
    signature: Signature


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The state of a folder, or of a single file, at one time.

    Attributes:
        settled_ns: signatures of files that changed before this time are reliable.
    """

    is_file: bool = False
    files: dict[str, LocalFile] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)
    settled_ns: int

    def is_settled(self, file: LocalFile) -> bool:
        """Tell whether the file's signature is reliable: the file isn't too young."""
        return max(file.signature[0], file.signature[1]) < self.settled_ns

    def signatures(self) -> dict[str, Signature]:
        """Return the reliable signatures."""
        return {path: file.signature for path, file in self.files.items() if self.is_settled(file)}

    def digest(self) -> str:
        """Return a checksum of all stats; empty if some aren't reliable."""
        if not all(map(self.is_settled, self.files.values())):
            return ""
        files = [(file.path, file.mode, *file.signature) for file in self.files.values()]
        whole = (self.is_file, sorted(files), sorted(self.links.items()), sorted(self.folders))
        return xxhash.xxh3_128_hexdigest(repr(whole).encode(errors="surrogateescape"))


def take_snapshot(items: Iterable[Item], clock: Clock, *, is_file: bool = False) -> Snapshot:
    """Take a snapshot of what a walk yields.

    Args:
        items: from the walk.
        clock: tells the age of files.
        is_file: the tree is a single file, the only item.

    Raises:
        OSError: a file's stat can't be read.
    """
    taken = Snapshot(is_file=is_file, settled_ns=int((clock.now() - _SETTLED).timestamp() * 1e9))
    for item in items:
        if item.kind is Kind.LINK:
            taken.links[item.path] = item.link
        elif item.kind is Kind.EMPTY_FOLDER:
            taken.folders.add(item.path)
        else:
            taken.files[item.path] = _describe(item)
    return taken


def signature_of(status: os.stat_result) -> Signature:
    """Return a file's signature, which changes with its content."""
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino


def _describe(item: Item) -> LocalFile:
    status = item.status or os.stat(item.source)  # noqa: PTH116 - text, for thousands of files
    mode = status.st_mode & 0o777
    return LocalFile(item.path, item.source, status.st_size, mode, status.st_mtime_ns, signature_of(status))
