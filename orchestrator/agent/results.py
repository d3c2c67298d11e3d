"""The files of a run's results: which count, what they are, and `manifest`, which lists them for a fetch."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import stat
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from .layout import Layout
from .treerule import plain_link
from .wire import ResultFile

_TEMPORARY = re.compile(r".*\.(?:tmp|part)|\..*(?:tmp|part|\.sw[a-z]).*", re.DOTALL)
_CHUNK_BYTES = 1 << 20

APPENDED = frozenset({"run.log", "samples.jsonl"})
"""Ours, and only ever appended to: what they held at an instant is a whole version of them."""


@dataclass(frozen=True)
class Found:
    """A file in the results.

    Attributes:
        path: relative to the results.
        link: the target of a link that stays inside; empty for a file.
        unfit: why it is no result; empty for one that is.
    """

    path: str
    bytes: int
    mtime_ns: int
    inode: int
    link: str = ""
    unfit: str = ""

    @property
    def unit(self) -> str:
        """What is complete only as a whole: a checkpoint's file or folder; empty for other files."""
        parts = self.path.split("/")
        return parts[1] if parts[0] == "checkpoints" and len(parts) > 1 else ""


def is_temporary(path: str) -> bool:
    """Say whether a path, or a folder on it, is named as something unfinished."""
    return any(_TEMPORARY.fullmatch(part) for part in path.split("/"))


def is_left_behind(path: str) -> bool:
    """Say whether a path is that of a copy of what the command wrote beside its outputs (leftbehind.py)."""
    return path.startswith("left-behind/")


def scan(results: Path) -> list[Found]:
    """List the finished files, and links to something among them, sorted."""
    return [found for found in survey(results) if not found.unfit]


def survey(results: Path) -> list[Found]:
    """List what is finished, sorted, what can't be a result too: it is to be told."""
    top = results.resolve()
    found = [_look(results, top, path) for path in _walk(results) if not is_temporary(path)]
    return sorted((one for one in found if one), key=lambda one: one.path)


def digest(path: Path) -> str:
    """Return the SHA-256 of a file's content, in hexadecimal."""
    hashed = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            hashed.update(chunk)
    return hashed.hexdigest()


def execute(layout: Layout, _args: argparse.Namespace) -> int:
    """Print the results as a JSON list; a link to a file has that file's content, one to a folder none."""
    files = []
    for found in survey(layout.results):
        if not is_utf8(found.path):
            sys.stderr.write(f"left out, because {found.unfit}: {os.fsencode(found.path)!r}\n")
        elif file := _describe(layout.results, found):
            files.append(asdict(file))
    sys.stdout.write(json.dumps(files) + "\n")
    return 0


def _describe(results: Path, found: Found) -> ResultFile | None:
    """Return a file's size and digest; None where a command that prunes its checkpoints has just removed it."""
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
    """Say whether a name can be written as UTF-8."""
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


def _look(results: Path, top: Path, path: str) -> Found | None:
    full = results / path
    if not is_utf8(path):
        return Found(path, 0, 0, 0, unfit="its name is not UTF-8")
    try:
        status = full.lstat()
        if stat.S_ISREG(status.st_mode):
            return Found(path, status.st_size, status.st_mtime_ns, status.st_ino)
        if not stat.S_ISLNK(status.st_mode):
            return Found(path, 0, 0, 0, unfit="it is neither a file, a folder nor a link")
        target = full.resolve()
    except (OSError, RuntimeError):
        # Gone in this instant, or a loop of links.
        return None
    if not target.is_relative_to(top):
        return Found(path, 0, 0, 0, unfit="it is a link that leaves the results")
    link = plain_link(path, target.relative_to(top).as_posix())
    return Found(path, 0, status.st_mtime_ns, status.st_ino, link=link)
