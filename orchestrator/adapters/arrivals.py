"""Results as they come home: what a machine says lies where, made on the laptop so that nothing of it leads out."""

from __future__ import annotations

import contextlib
import hashlib
import os
import posixpath
import stat
from collections.abc import Iterable
from pathlib import Path

from orchestrator.core.errors import KedgeError
from orchestrator.core.report import ResultFile
from orchestrator.core.tree import (
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
"""Each is copied by itself."""


class UnfitError(ValueError):
    """Why something that a machine names doesn't come home."""


def place_at_home(root: Path, path: str) -> Path:
    """Return where a result lies at home, its folders made; none of them is a link.

    Raises:
        UnfitError: its path leads out of the results.
        OSError: a folder can't be made.
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
            # Of an earlier fetch: what was a link then is a folder now.
            folder.unlink()
            folder.mkdir()
        if not stat.S_ISDIR(folder.lstat().st_mode):
            raise UnfitError(BELOW_A_LINK)
    return root / home_path(path)


def link_at_home(root: Path, path: str, target: str) -> None:
    """Make a link of the results, in the place of a file or another link, if there is one.

    Raises:
        UnfitError: it leaves them, or a folder is in its place.
        OSError: it can't be made.
    """
    if not stays_inside(path, target):
        raise UnfitError(LINK_LEAVES)
    place = place_at_home(root, path)
    if place.is_symlink() and os.readlink(place) == target:  # noqa: PTH115 - as above
        return
    if place.is_dir() and not place.is_symlink():
        raise UnfitError("a folder has its name")
    place.unlink(missing_ok=True)
    place.symlink_to(target)


def has_content(path: Path, size: int, sha256: str) -> bool:
    """Tell whether a file, and no link, has this content."""
    try:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode) or status.st_size != size:
            return False
        with path.open("rb") as content:
            return hashlib.file_digest(content, "sha256").hexdigest() == sha256
    except (FileNotFoundError, NotADirectoryError):
        return False


class Homecoming:
    """The part of one machine's results that isn't simply copied: links, and files that get another name."""

    def __init__(self, root: Path, files: Iterable[ResultFile]) -> None:
        self._root = root
        self._files = {file.path: file for file in files}
        self._left_out = {file.path: file.left_out for file in self._files.values() if file.left_out}

    def to_copy(self) -> list[tuple[str, Path]]:
        """List the files that get another name and aren't at home yet, with their places there."""
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
        """Make the links, now that what they lead to is there."""
        renamed = {file.path: home_path(file.path) for file in self._renamed()}
        for file in self._files.values():
            if file.link and not file.left_out:
                leads_to = posixpath.normpath(posixpath.join(posixpath.dirname(file.path), file.link))
                target = home_path(file.link) if leads_to in renamed else file.link
                try:
                    link_at_home(self._root, file.path, target)
                except (UnfitError, OSError) as err:
                    self._left_out[file.path] = str(err)
        renamed |= disarm(self._root)
        kept = {path: home for path, home in renamed.items() if path not in self._left_out}
        return Arrival(left_out=self._left_out, renamed=kept)

    def _free_place(self, path: str) -> Path:
        place = place_at_home(self._root, path)
        if place.is_symlink() or place.is_dir():
            raise UnfitError(f"a link or a folder has its name at home, {place.name}")
        return place

    def _renamed(self) -> list[ResultFile]:
        files = [file for file in self._files.values() if not file.link and not file.left_out]
        renamed = []
        for file in files:
            home = home_path(file.path)
            if home != file.path and home in self._files:
                self._left_out[file.path] = f"its name at home, {home}, is another's"
            elif home != file.path:
                renamed.append(file)
        return renamed


def disarm(root: Path) -> dict[str, str]:
    """Rename what git or Mercurial would obey in a folder at home, whoever left it there; return path -> new path.

    Raises:
        KedgeError: it can't be renamed, or a folder can't be looked into.
    """
    renamed = {}
    # No recursion, as os.walk has it: a machine's results may be nested as deeply as a path is long.
    waiting = [""]
    while waiting:
        folder = waiting.pop()
        try:
            with os.scandir(root / folder) as listing:
                children = list(listing)
        except OSError as err:
            raise KedgeError(
                f"a folder that came home can't be looked into: {folder[:_SHOWN]!r}",
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
            f"{str(place)!r} makes a repository of what came home, and can't be renamed to {new.name}",
            why=err.strerror or str(err),
            fix="remove it, and run neither git nor hg in a folder of these results before",
        ) from err
