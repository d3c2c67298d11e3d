"""Lists the files of a run's results; `manifest` prints them for a fetch."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

from ..base.layout import Layout
from ..base.record import Record, to_json
from ..base.tree_rule import is_tree_path, plain_link
from .copied_parts import CopiedPart, list_copied
from .described import ResultFile

_TEMPORARY = re.compile(r".*\.(?:tmp|part)|\..*(?:tmp|part|\.sw[a-z]).*", re.DOTALL)
_CHUNK_BYTES = 1 << 20
_LONGEST_NAME_BYTES = 255

# In front of a task's part of the results: its mode's folder, unless it is the first, and its name, if it has one.
_TASK = r"(?:\d+-[^/]+/)?(?:(?!(?:output|checkpoints|left-behind)/)[a-z][a-z0-9-]*/)?"
_UNIT = re.compile(rf"({_TASK}checkpoints/[^/]+)(?:/.*)?", re.DOTALL)
_LEFT_BEHIND = re.compile(rf"{_TASK}left-behind/.*", re.DOTALL)
_APPENDED = re.compile(rf"{_TASK}run\.log|samples\.jsonl")


class ResultEntry(Record):
    """A file in the results.

    Attributes:
        path: relative to the results.
        link: a link's target within the results; empty for a file.
        unfit: why it can't be a result; empty if it is one.
    """

    path: str
    bytes: int
    mtime_ns: int
    inode: int
    link: str = ""
    unfit: str = ""

    @property
    def unit(self) -> str:
        """The path of the checkpoint that it is a part of, which is complete only as a whole; else empty."""
        return unit_of(self.path)


def unit_of(path: str) -> str:
    """Return the path of the checkpoint that a path belongs to; empty for none."""
    found = _UNIT.fullmatch(path)
    return found[1] if found else ""


def is_temporary(path: str) -> bool:
    """Whether a path, or a folder on it, has the name of something unfinished."""
    return any(_TEMPORARY.fullmatch(part) for part in path.split("/"))


def is_left_behind(path: str) -> bool:
    """Whether a path is a copy of a file that the command wrote outside its outputs (left_behind.py)."""
    return bool(_LEFT_BEHIND.fullmatch(path))


def is_task_key(key: str) -> bool:
    """Whether a text is a task's key, which is a folder in the results."""
    is_name = is_tree_path(key) and len(os.fsencode(key)) <= _LONGEST_NAME_BYTES
    return is_name and bool(re.fullmatch(_TASK, f"{key}/"))


def is_appended(path: str) -> bool:
    """Whether a path is one of kedge's own append-only files, whose content at any time is a complete version."""
    return bool(_APPENDED.fullmatch(path))


def scan(results: Path) -> list[ResultEntry]:
    """List the finished files, and links among them, sorted."""
    return [found for found in scan_all(results) if not found.unfit]


def scan_all(results: Path) -> list[ResultEntry]:
    """List all finished entries, sorted, including those that can't be results, so that they can be reported."""
    top = results.resolve()
    found = [_look(results, top, path) for path in _walk(results) if not is_temporary(path)]
    return sorted((one for one in found if one), key=lambda one: one.path)


def scan_own(layout: Layout) -> list[ResultEntry]:
    """List all finished entries as `scan_all` does, without copies of other machines' parts of checkpoints."""
    copied = list_copied(layout)
    return [found for found in scan_all(layout.results) if not _is_copied(found, copied.get(found.path))]


def digest(path: Path) -> str:
    """Return the SHA-256 of a file's content, in hexadecimal."""
    hashed = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            hashed.update(chunk)
    return hashed.hexdigest()


def execute(layout: Layout) -> int:
    """Print the results as a JSON list; a link to a file has the file's size and digest, a link to a folder none."""
    files = []
    for found in scan_own(layout):
        if not is_utf8(found.path):
            sys.stderr.write(f"left out, because {found.unfit}: {os.fsencode(found.path)!r}\n")
        elif file := _describe(layout.results, found):
            files.append(to_json(file))
    sys.stdout.write(json.dumps(files) + "\n")
    return 0


def _is_copied(found: ResultEntry, part: CopiedPart | None) -> bool:
    return part is not None and part.is_like(found.bytes, found.mtime_ns, found.link)


def _describe(results: Path, found: ResultEntry) -> ResultFile | None:
    """Return a file's size and digest; None if a command that prunes its checkpoints has just removed it."""
    full = results / found.path
    if found.unfit:
        return ResultFile(path=found.path, bytes=0, sha256="", left_out=found.unfit)
    try:
        if full.is_file():
            return ResultFile(path=found.path, bytes=full.stat().st_size, sha256=digest(full), link=found.link)
    except FileNotFoundError:
        return None
    return ResultFile(path=found.path, bytes=0, sha256="", link=found.link) if found.link else None


def is_utf8(path: str) -> bool:
    """Whether a name is valid UTF-8."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _walk(results: Path) -> Iterator[str]:
    for folder, folders, files in os.walk(results):
        relative = os.path.relpath(folder, results)
        links = [name for name in folders if (Path(folder) / name).is_symlink()]
        for name in [*files, *links]:
            yield name if relative == "." else f"{relative}/{name}"


def _look(results: Path, top: Path, path: str) -> ResultEntry | None:
    full = results / path
    if not is_utf8(path):
        return ResultEntry(path, 0, 0, 0, unfit="its name is not UTF-8")
    try:
        status = full.lstat()
        if stat.S_ISREG(status.st_mode):
            return ResultEntry(path, status.st_size, status.st_mtime_ns, status.st_ino)
        if not stat.S_ISLNK(status.st_mode):
            return ResultEntry(path, 0, 0, 0, unfit="it is neither a file, a folder nor a link")
        target = full.resolve()
    except (OSError, RuntimeError):
        # Removed at this moment, or a loop of links.
        return None
    if not target.is_relative_to(top):
        return ResultEntry(path, 0, 0, 0, unfit="it is a link that leaves the results")
    link = plain_link(path, target.relative_to(top).as_posix())
    return ResultEntry(path, 0, status.st_mtime_ns, status.st_ino, link=link)
