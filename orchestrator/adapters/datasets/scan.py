"""What lies in a folder of data, by stat alone."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import xxhash

from orchestrator.adapters.datatree import Kind, only_to, unreadable, walk
from orchestrator.core.ports import Clock

# What the agent keeps in a mirrored folder.
_OWN = ".kedge"
# A file written twice within a tick of the file system's clock looks the same both times. FAT's tick is two seconds.
_SETTLED = timedelta(seconds=2)

Signature = tuple[int, int, int, int]
"""mtime_ns, ctime_ns, size and inode: while they stay the same, so does the content."""


class LocalFile(NamedTuple):
    """A file of the laptop's.

    Attributes:
        path: in the data set.
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
class Found:
    """A folder, or a single file, at one instant."""

    is_file: bool = False
    files: dict[str, LocalFile] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)
    settled_ns: int

    def signatures(self) -> dict[str, Signature]:
        """Return what can be relied on later: the signatures of files that aren't too young."""
        return {path: file.signature for path, file in self.files.items() if self._is_settled(file)}

    def digest(self) -> str:
        """Return a checksum of all stats, empty while some can't be relied on."""
        if not all(map(self._is_settled, self.files.values())):
            return ""
        files = [(file.path, file.mode, *file.signature) for file in self.files.values()]
        whole = (self.is_file, sorted(files), sorted(self.links.items()), sorted(self.folders))
        return xxhash.xxh3_128_hexdigest(repr(whole).encode(errors="surrogateescape"))

    def _is_settled(self, file: LocalFile) -> bool:
        return max(file.signature[0], file.signature[1]) < self.settled_ns


def scan(source: Path, clock: Clock, places: Sequence[str] = ()) -> Found:
    """Read a folder or a file.

    Links inside the folder stay links; of one that leads to one of the places outside of it, what it leads to is taken.

    Raises:
        BadRequestError: there is no such source, something in it can't be read or sent, or a link leads elsewhere.
    """
    found = Found(is_file=source.is_file(), settled_ns=int((clock.now() - _SETTLED).timestamp() * 1e9))
    for item in walk(source, only_to(places)):
        if item.path.partition("/")[0] == _OWN:
            continue
        if item.kind is Kind.LINK:
            found.links[item.path] = item.link
        elif item.kind is Kind.EMPTY_FOLDER:
            found.folders.add(item.path)
        else:
            _add_file(found, item.path or source.name, item.source)
    return found


def _add_file(found: Found, path: str, source: str) -> None:
    try:
        status = os.stat(source)  # noqa: PTH116 - text, for thousands of files
    except OSError as err:
        raise unreadable(err, source) from err
    found.files[path] = LocalFile(
        path=path,
        source=source,
        bytes=status.st_size,
        mode=stat.S_IMODE(status.st_mode) & 0o777,
        mtime_ns=status.st_mtime_ns,
        signature=signature_of(status),
    )


def signature_of(status: os.stat_result) -> Signature:
    """Return what tells one state of a file from another."""
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino
