"""Reads the laptop's code tree: every entry with its digest, and the path of its content."""

from __future__ import annotations

import errno
import logging
import os
import posixpath
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from orchestrator.adapters.sync.code.digests import DigestCache
from orchestrator.adapters.sync.code.entries import FILE, LINK, MANIFEST_NAME, CodeEntry, CodeManifest, manifest_of
from orchestrator.adapters.sync.snapshot import Item, Kind, take_snapshot
from orchestrator.adapters.sync.worktree.listing import list_code, list_package
from orchestrator.core.errors import BadRequestError, KedgeError
from orchestrator.core.ports import Clock
from orchestrator.core.protocol.tree import plain_link, stays_inside

_log = logging.getLogger(__name__)


class TreeChangedError(KedgeError):
    """A file changed between being listed and being sent."""

    def __init__(self, path: str) -> None:
        super().__init__(
            f"{path} changes while it is being sent",
            why="the machine would get neither the old content nor the new",
            fix="stop what writes there, or name it in .kedgeignore",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeTree:
    """A manifest, and the paths of its files on the laptop.

    Attributes:
        sources: entry -> the path of its content on the laptop.
    """

    manifest: CodeManifest
    sources: Mapping[str, str]

    @property
    def bytes(self) -> int:
        """The size of all files, uncompressed."""
        return sum(entry.size for entry in self.manifest.entries)


def read_tree(workdir: Path | None, extras: Mapping[str, Path], caches: Path, clock: Clock) -> CodeTree:
    """Read a working folder, and add packages whose names it doesn't have.

    Raises:
        BadRequestError: it has something that can't be sent.
    """
    entries: dict[str, CodeEntry] = {}
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


def _lay(
    entries: dict[str, CodeEntry], sources: dict[str, str], prefix: str, found: Iterable[CodeEntry], root: Path
) -> None:
    for entry in found:
        path = prefix + entry.path
        entries[path] = entry._replace(path=path)
        sources[path] = f"{root}/{entry.path}"


def _read_folder(root: Path, paths: Iterable[str], caches: Path, clock: Clock) -> list[CodeEntry]:
    snapshot = take_snapshot(_items(root, paths), clock)
    cache = DigestCache(caches, root)
    entries = [CodeEntry(path, LINK, 0o777, 0, "", link) for path, link in snapshot.links.items()]
    for file in snapshot.files.values():
        mode = 0o755 if file.mode & stat.S_IXUSR else 0o644
        try:
            entries.append(CodeEntry(file.path, FILE, mode, file.bytes, cache.digest(file, snapshot), ""))
        except OSError as err:
            _require_gone(err, file.source)
    cache.save()
    return entries


def _items(root: Path, paths: Iterable[str]) -> Iterator[Item]:
    for path in paths:
        full = f"{root}/{path}"
        try:
            status = os.lstat(full)
            if stat.S_ISREG(status.st_mode):
                yield Item(Kind.FILE, _sendable(path), full, status=status)
            elif stat.S_ISLNK(status.st_mode):
                yield Item(Kind.LINK, path, full, _checked_link(root, path))
            else:
                _log.warning("%s is neither a file nor a link, and is left out", full)
        except OSError as err:
            _require_gone(err, full)


def _require_gone(err: OSError, full: str) -> None:
    """Ignore a file that is deleted but tracked, or was deleted after the listing; refuse one that can't be read."""
    if isinstance(err, PermissionError):
        raise BadRequestError(
            f"{full} can't be read",
            why=err.strerror or "",
            fix="make it readable, or name it in .kedgeignore",
        ) from err
    if not isinstance(err, FileNotFoundError | NotADirectoryError):
        raise err


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
            f"the link {path!r} leads in a circle",
            why="it has no target",
            fix="remove it, or name it in .kedgeignore",
        )
    # Once as written, and once with the links on its way resolved.
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
