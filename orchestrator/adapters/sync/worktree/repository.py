"""Finds a folder's git repository and the paths of its parts, so that git itself never sees its configuration."""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

from orchestrator.adapters.host.files import read_small
from orchestrator.core.errors import BadRequestError

_POINTER_BYTES = 1 << 16
_CONFIG_BYTES = 1 << 20
_HEAD = re.compile(rb"ref:\s*refs/|[0-9a-f]{40}([0-9a-f]{24})?\s*$")
_GITFILE = "gitdir: "


@dataclass(frozen=True, slots=True, kw_only=True)
class Repository:
    """The paths of a repository's parts.

    Attributes:
        top: its work tree: the folder that contains `.git`, whatever the configuration says.
        own: the folder for this work tree alone, with the index.
        common: the folder that all work trees of the repository share.
    """

    top: Path
    own: Path
    common: Path

    @property
    def index(self) -> Path:
        """The list of tracked files; it may be missing."""
        return self.own / "index"

    @property
    def objects(self) -> Path:
        """The contents; a sparse index names whole folders by their objects."""
        return self.common / "objects"

    @property
    def exclude(self) -> Path:
        """The ignore rules of this clone alone; the file may be missing."""
        return self.common / "info" / "exclude"

    @property
    def config(self) -> Path:
        """The configuration, which strangers may have written."""
        return self.common / "config"

    def shared_indexes(self) -> list[Path]:
        """List the shared parts of a split index."""
        return [entry for entry in self.own.iterdir() if entry.name.startswith("sharedindex.") and entry.is_file()]

    def read_config(self) -> bytes:
        """Read the configuration's text; empty without one.

        Raises:
            BadRequestError: it isn't a regular file, or is too large.
        """
        try:
            return read_small(self.config, limit=_CONFIG_BYTES)
        except FileNotFoundError:
            return b""


def find_repository(folder: Path) -> Repository | None:
    """Return the repository whose work tree contains a folder: the nearest `.git` in it or above, as git does.

    Unlike git, kedge never takes a folder with the layout of a bare repository for one: a clone may contain it.

    Raises:
        BadRequestError: `.git` is a file that names no repository.
    """
    here = Path(os.path.realpath(folder))
    device = here.stat().st_dev
    for top in (here, *here.parents):
        if top.stat().st_dev != device:
            return None
        if (found := open_repository(top)) is not None:
            return found
    return None


def open_repository(top: Path) -> Repository | None:
    """Return the repository whose work tree is this folder; None if there is none.

    Raises:
        BadRequestError: `.git` is a file that names no repository.
    """
    place = top / ".git"
    try:
        mode = place.stat().st_mode
    except OSError:
        return None
    if stat.S_ISDIR(mode):
        return _repository(top, place)
    named = _read_line(place)
    if named.startswith(_GITFILE) and (found := _repository(top, top / named.removeprefix(_GITFILE))) is not None:
        return found
    raise BadRequestError(
        f"{place} names no git repository", why="it is a file", fix="remove it, or clone the repository again"
    )


def _repository(top: Path, own: Path) -> Repository | None:
    """Return the repository in a folder; None if it isn't one by the rules of git's `is_git_directory`."""
    try:
        common = own / _read_line(own / "commondir")
    except FileNotFoundError:
        common = own
    if not _is_head(own / "HEAD") or not (common / "objects").is_dir() or not (common / "refs").is_dir():
        return None
    index = own / "index"
    if index.exists() and not index.is_file():
        raise BadRequestError(f"{index} is not a regular file", fix="remove it, and run `git reset` there")
    return Repository(top=top, own=own, common=common)


def _is_head(path: Path) -> bool:
    try:
        if path.is_symlink():
            return str(path.readlink()).startswith("refs/")
        return _HEAD.match(read_small(path, limit=_POINTER_BYTES)) is not None
    except FileNotFoundError:
        return False


def _read_line(path: Path) -> str:
    return os.fsdecode(read_small(path, limit=_POINTER_BYTES)).rstrip("\r\n")
