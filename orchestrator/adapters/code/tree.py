"""The laptop's code at one instant: every entry with its digest, and where its content lies."""

from __future__ import annotations

import errno
import logging
import os
import posixpath
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from orchestrator.adapters.code.digests import DigestCache
from orchestrator.adapters.code.entries import FILE, LINK, MANIFEST_NAME, Entry, Manifest, manifest_of
from orchestrator.adapters.code.listing import list_code, list_package
from orchestrator.core.errors import BadRequestError, KedgeError
from orchestrator.core.ports import Clock
from orchestrator.core.tree import plain_link, stays_inside

_log = logging.getLogger(__name__)


class TreeChangedError(KedgeError):
    """A file changed between being listed and being sent."""

    def __init__(self, path: str) -> None:
        super().__init__(
            f"{path} changes while it is being sent",
            why="what would arrive is neither the old content nor the new",
            fix="stop what writes there, or name it in .kedgeignore",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeTree:
    """A manifest and the files behind it.

    Attributes:
        sources: where the content of each file lies on the laptop.
    """

    manifest: Manifest
    sources: Mapping[str, str]

    @property
    def bytes(self) -> int:
        """Of all files, uncompressed."""
        return sum(entry.size for entry in self.manifest.entries)


def read_tree(workdir: Path | None, extras: Mapping[str, Path], caches: Path, clock: Clock) -> CodeTree:
    """Read a working folder, with packages laid in where it has nothing of their name.

    Raises:
        BadRequestError: it holds something that can't be sent.
    """
    entries: dict[str, Entry] = {}
    sources: dict[str, str] = {}
    if workdir is not None:
        _require_folder(workdir)
        _lay(entries, sources, "", _read_folder(workdir, list_code(workdir), caches, clock), workdir)
    for name, root in extras.items():
        if not any(path == name or path.startswith(f"{name}/") for path in entries):
            _lay(entries, sources, f"{name}/", _read_folder(root, list_package(root), caches, clock), root)
    return CodeTree(manifest=manifest_of(entries.values()), sources=sources)


def _require_folder(workdir: Path) -> None:
    if not workdir.is_dir():
        raise BadRequestError(f"there is no folder {workdir}", fix="correct `workdir` in the job file")


def _lay(entries: dict[str, Entry], sources: dict[str, str], prefix: str, found: Iterable[Entry], root: Path) -> None:
    for entry in found:
        path = prefix + entry.path
        entries[path] = entry._replace(path=path)
        sources[path] = f"{root}/{entry.path}"


def _read_folder(root: Path, paths: Iterable[str], caches: Path, clock: Clock) -> list[Entry]:
    cache = DigestCache(caches, root, clock)
    entries = [entry for path in paths if (entry := _read_entry(root, path, cache)) is not None]
    cache.save()
    return entries


def _read_entry(root: Path, path: str, cache: DigestCache) -> Entry | None:
    full = f"{root}/{path}"
    try:
        found = os.lstat(full)
        if stat.S_ISREG(found.st_mode):
            mode = 0o755 if found.st_mode & stat.S_IXUSR else 0o644
            return Entry(_sendable(path), FILE, mode, found.st_size, cache.digest(path, found), "")
        if stat.S_ISLNK(found.st_mode):
            return Entry(path, LINK, 0o777, 0, "", _checked_link(root, path))
    except (FileNotFoundError, NotADirectoryError):
        # Tracked but deleted, or gone since it was listed.
        return None
    except PermissionError as err:
        raise BadRequestError(
            f"{full} can't be read",
            why=err.strerror or "",
            fix="make it readable, or name it in .kedgeignore",
        ) from err
    _log.warning("%s is neither a file nor a link, and is left out", full)
    return None


def _sendable(path: str) -> str:
    if path == MANIFEST_NAME:
        raise BadRequestError(
            f"the code holds a file {MANIFEST_NAME}", why="the name is kedge's own", fix="remove or rename it"
        )
    return path


def _checked_link(root: Path, path: str) -> str:
    target = os.readlink(f"{root}/{path}")  # noqa: PTH115 - bytes that are no UTF-8 must stay what they are
    if _is_circle(f"{root}/{path}"):
        raise BadRequestError(
            f"the link {path!r} leads round in circles",
            why="it leads to nothing",
            fix="remove it, or name it in .kedgeignore",
        )
    # Once as written, and once through the links on its way.
    top = os.path.realpath(root)
    real = os.path.realpath(f"{root}/{posixpath.dirname(path)}/{target}")
    inside = real == top or real.startswith(f"{top.rstrip('/')}/")
    written = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    if posixpath.isabs(target) or written == ".." or written.startswith("../") or not inside:
        raise BadRequestError(
            f"the link {path!r} leaves the code: it points to {target!r}",
            why="it would point to something else, or nothing, on the machine",
            fix="make it relative and inside the folder, name it in .kedgeignore, or send its target as data",
        )
    return target if stays_inside(path, target) else plain_link(path, os.path.relpath(real, top))


def _is_circle(link: str) -> bool:
    try:
        os.stat(link)  # noqa: PTH116 - a path with bytes that are no UTF-8
    except OSError as err:
        return err.errno == errno.ELOOP
    return False
