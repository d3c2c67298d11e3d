"""What lies in a folder of data, by stat alone."""

from __future__ import annotations

import logging
import os
import posixpath
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import xxhash

from orchestrator.core.errors import BadRequestError
from orchestrator.core.ports import Clock

_log = logging.getLogger(__name__)

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


def scan(source: Path, clock: Clock) -> Found:
    """Read a folder or a file.

    Links inside the folder stay links; of one that leads out of it, what it leads to is taken, as it would point to
    nothing on the machine. Sockets, devices and pipes are left out, and a warning names them.

    Raises:
        BadRequestError: there is no such source, or something in it can't be read or sent.
    """
    found = Found(is_file=source.is_file(), settled_ns=int((clock.now() - _SETTLED).timestamp() * 1e9))
    try:
        if found.is_file:
            _add_file(found, source.name, str(source), source.stat())
        else:
            _walk(found, "", str(source), os.path.realpath(source), ())
    except OSError as err:
        raise BadRequestError(
            f"{err.filename or source} can't be read",
            why=err.strerror or str(err),
            fix="make it readable, remove it, or correct `file_mounts` or `data` in the job file",
        ) from err
    return found


def _walk(found: Found, path: str, source: str, root: str, above: tuple[str, ...]) -> None:
    """Add a folder; `above` are the real paths of the folders that it was reached through."""
    real = os.path.realpath(source)
    if real in above:
        raise BadRequestError(
            f"the link {source!r} leads to a folder that it lies in",
            why="what it leads to would never end",
            fix="remove it",
        )
    with os.scandir(source) as listing:
        children = sorted(listing, key=lambda child: child.name)
    if not children and path:
        found.folders.add(path)
    for child in children:
        if not path and child.name == _OWN:
            continue
        _add(found, f"{path}/{child.name}" if path else child.name, child, root, (*above, real))


def _add(found: Found, path: str, child: os.DirEntry[str], root: str, above: tuple[str, ...]) -> None:
    if child.is_symlink() and _stays_inside(child.path, path, root):
        found.links[path] = os.readlink(child.path)  # noqa: PTH115 - bytes that are no UTF-8 must stay what they are
        return
    status = child.stat()
    if stat.S_ISDIR(status.st_mode):
        _walk(found, path, child.path, root, above)
    elif stat.S_ISREG(status.st_mode):
        _add_file(found, path, child.path, status)
    else:
        _log.warning("%s is neither a file, a folder nor a link, and is left out", child.path)


def _add_file(found: Found, path: str, source: str, status: os.stat_result) -> None:
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


def _stays_inside(source: str, path: str, root: str) -> bool:
    """Tell whether a link leads to somewhere in the folder, once as written and once through the links on its way."""
    target = os.readlink(source)  # noqa: PTH115 - as above
    written = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    real = os.path.realpath(source)
    inside = real == root or real.startswith(f"{root}/")
    return inside and not posixpath.isabs(target) and written != ".." and not written.startswith("../")


def parents(path: str) -> Iterator[str]:
    """Yield the folders that a path lies in, innermost first."""
    while path := path.rpartition("/")[0]:
        yield path
