"""Finds a folder's git repository, and reads of it what kedge has use for; git itself never meets its configuration."""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

from orchestrator.adapters.files import read_small
from orchestrator.core.errors import BadRequestError

_POINTER_BYTES = 1 << 16
_CONFIG_BYTES = 1 << 20
_HEAD = re.compile(rb"ref:\s*refs/|[0-9a-f]{40}([0-9a-f]{24})?\s*$")
_GITFILE = "gitdir: "


@dataclass(frozen=True, slots=True, kw_only=True)
class Repository:
    """Where the parts of a repository lie.

    Attributes:
        top: its work tree: the folder that holds `.git`, whatever the configuration claims.
        own: what belongs to this work tree alone, above all the index.
        common: what all work trees of the repository share.
    """

    top: Path
    own: Path
    common: Path

    @property
    def index(self) -> Path:
        """What is tracked; it need not be there."""
        return self.own / "index"

    @property
    def objects(self) -> Path:
        """Contents; an index that leaves folders out names them by their objects."""
        return self.common / "objects"

    @property
    def exclude(self) -> Path:
        """What is ignored in this copy of the repository alone; it need not be there."""
        return self.common / "info" / "exclude"

    @property
    def config(self) -> Path:
        """The configuration that strangers may have written."""
        return self.common / "config"

    def shared_indexes(self) -> list[Path]:
        """List the parts of a split index that the index builds on."""
        return [entry for entry in self.own.iterdir() if entry.name.startswith("sharedindex.") and entry.is_file()]

    def read_config(self) -> bytes:
        """Read the configuration's text; empty where there is none.

        Raises:
            BadRequestError: it is no plain file, or a large one.
        """
        try:
            return read_small(self.config, limit=_CONFIG_BYTES)
        except FileNotFoundError:
            return b""


def find_repository(folder: Path) -> Repository | None:
    """Return the repository whose work tree a folder lies in: the nearest `.git` upward, as git looks for it.

    Git takes a folder that is laid out as a bare repository for one, too. kedge never does: a clone may bring it.

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
    """Return the repository of which a folder is the work tree; None where it is none's.

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
    raise BadRequestError(f"{place} names no git repository", why="it is a file", fix="remove it, or clone anew")


def _repository(top: Path, own: Path) -> Repository | None:
    """Look whether this is a repository's folder, as git's `is_git_directory` does."""
    try:
        common = own / _read_line(own / "commondir")
    except FileNotFoundError:
        common = own
    if not _is_head(own / "HEAD") or not (common / "objects").is_dir() or not (common / "refs").is_dir():
        return None
    index = own / "index"
    if index.exists() and not index.is_file():
        raise BadRequestError(f"{index} is no plain file", fix="remove it, and run `git reset` there")
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
