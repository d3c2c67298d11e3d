"""Places a machine's results on the laptop so that no path, link or repository in them leads out of their folder."""

from __future__ import annotations

import contextlib
import os
import posixpath
import stat
from collections.abc import Iterable
from pathlib import Path

from orchestrator.adapters.host.hashing import sha256_of
from orchestrator.core.errors import KedgeError
from orchestrator.core.protocol.results import ResultFile
from orchestrator.core.protocol.tree import (
    BELOW_A_LINK,
    LINK_LEAVES,
    Arrival,
    home_path,
    is_tree_path,
    stays_inside,
    upper_folders,
)

_DEPTH = 200
_SHOWN = 200
_RENAMED_AT_MOST = 256
"""A limit, because each renamed file is copied in a request of its own."""


class UnfitError(ValueError):
    """A result can't be placed on the laptop; the text says why."""


def place_file(root: Path, path: str) -> Path:
    """Return a result's path on the laptop, after creating its folders; none of them is a link.

    Raises:
        UnfitError: its path leads out of the results, or is too deep.
        OSError: a folder can't be created.
    """
    if not is_tree_path(path):
        raise UnfitError("its path leads out of the results")
    if path.count("/") > _DEPTH:
        raise UnfitError("it lies deeper than anything that can be removed again")
    root.mkdir(parents=True, exist_ok=True)
    for upper in reversed(list(upper_folders(path))):
        folder = root / upper
        with contextlib.suppress(FileExistsError):
            folder.mkdir()
        if folder.is_symlink() and stays_inside(upper, os.readlink(folder)):  # noqa: PTH115 - bytes that are no UTF-8
            # An earlier fetch may have left a link here; now it must be a folder.
            folder.unlink()
            folder.mkdir()
        if not stat.S_ISDIR(folder.lstat().st_mode):
            raise UnfitError(BELOW_A_LINK)
    return root / home_path(path)


def place_link(root: Path, path: str, target: str) -> None:
    """Create a link within the results; it replaces a file or another link of that name.

    Raises:
        UnfitError: it leads out of the results, or a folder has its name.
        OSError: it can't be created.
    """
    if not stays_inside(path, target):
        raise UnfitError(LINK_LEAVES)
    place = place_file(root, path)
    if place.is_symlink() and os.readlink(place) == target:  # noqa: PTH115 - as above
        return
    if place.is_dir() and not place.is_symlink():
        raise UnfitError("a folder has its name")
    place.unlink(missing_ok=True)
    place.symlink_to(target)


def has_content(path: Path, size: int, sha256: str) -> bool:
    """Tell whether a path is a regular file, not a link, with this content."""
    try:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode) or status.st_size != size:
            return False
        with path.open("rb") as content:
            return sha256_of(content) == sha256
    except (FileNotFoundError, NotADirectoryError):
        return False


def find_differences(files: Iterable[ResultFile], root: Path) -> tuple[str, ...]:
    """Compare a copy with what the machine listed; return the paths of files that are missing or differ.

    Links only have to exist, because their targets are compared themselves. A file may be longer than listed: a log may
    have grown since.
    """
    return tuple(file.path for file in files if not _is_there(root / home_path(file.path), file))


def _is_there(path: Path, file: ResultFile) -> bool:
    try:
        if file.link:
            return path.is_symlink()
        if not path.is_file() or path.stat().st_size < file.bytes:
            return False
        with path.open("rb") as content:
            return sha256_of(content, file.bytes) == file.sha256
    except OSError:
        return False


class ResultsPlacer:
    """Handles those results of one machine that aren't simply copied: links, and files that have to be renamed."""

    def __init__(self, root: Path, files: Iterable[ResultFile]) -> None:
        self._root = root
        self._files = {file.path: file for file in files}
        self._left_out = {file.path: file.left_out for file in self._files.values() if file.left_out}

    def to_copy(self) -> list[tuple[str, Path]]:
        """List the renamed files that aren't on the laptop yet, with their new paths."""
        wanted = []
        for file in self._renamed():
            try:
                place = self._free_place(file.path)
                if not has_content(place, file.bytes, file.sha256):
                    wanted.append((file.path, place))
            except (UnfitError, OSError) as err:
                self._left_out[file.path] = str(err)
        for path, _ in wanted[_RENAMED_AT_MOST:]:
            self._left_out[path] = f"more than {_RENAMED_AT_MOST} files would have to be renamed"
        return wanted[:_RENAMED_AT_MOST]

    def finish(self) -> Arrival:
        """Create the links, after their targets were copied."""
        renamed = {file.path: home_path(file.path) for file in self._renamed()}
        for file in self._files.values():
            if file.link and not file.left_out:
                leads_to = posixpath.normpath(posixpath.join(posixpath.dirname(file.path), file.link))
                target = home_path(file.link) if leads_to in renamed else file.link
                try:
                    place_link(self._root, file.path, target)
                except (UnfitError, OSError) as err:
                    self._left_out[file.path] = str(err)
        renamed |= rename_repository_files(self._root)
        kept = {path: home for path, home in renamed.items() if path not in self._left_out}
        return Arrival(left_out=self._left_out, renamed=kept)

    def _free_place(self, path: str) -> Path:
        place = place_file(self._root, path)
        if place.is_symlink() or place.is_dir():
            raise UnfitError(f"a link or a folder on this computer has its name there, {place.name}")
        return place

    def _renamed(self) -> list[ResultFile]:
        files = [file for file in self._files.values() if not file.link and not file.left_out]
        renamed = []
        for file in files:
            home = home_path(file.path)
            if home != file.path and home in self._files:
                self._left_out[file.path] = f"its name on this computer, {home}, is another file's"
            elif home != file.path:
                renamed.append(file)
        return renamed


def rename_repository_files(root: Path) -> dict[str, str]:
    """Rename what git or Mercurial would obey in a folder of results; return path -> new path.

    Raises:
        KedgeError: something can't be renamed, or a folder can't be listed.
    """
    renamed = {}
    # Without os.walk's recursion: a machine's results may be nested as deeply as a path is long.
    waiting = [""]
    while waiting:
        folder = waiting.pop()
        try:
            with os.scandir(root / folder) as listing:
                children = list(listing)
        except OSError as err:
            raise KedgeError(
                f"a folder of the results can't be listed: {folder[:_SHOWN]!r}",
                why=err.strerror or str(err),
                fix="fetch to a folder with a shorter path, or remove it, and run neither git nor hg in these results",
            ) from err
        for child in children:
            path = f"{folder}/{child.name}" if folder else child.name
            if child.is_dir(follow_symlinks=False):
                waiting.append(path)
            elif (home := home_path(path)) != path:
                _rename(root / path, root / home)
                renamed[path] = home
    return renamed


def _rename(place: Path, new: Path) -> None:
    try:
        place.replace(new)
    except OSError as err:
        raise KedgeError(
            f"{str(place)!r} makes the results a repository, and can't be renamed to {new.name}",
            why=err.strerror or str(err),
            fix="remove it, and run neither git nor hg in a folder of these results before",
        ) from err
