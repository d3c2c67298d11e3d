"""Walks the laptop's data: yields files and links, and follows links out of the source only where allowed."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from orchestrator.adapters.sync.snapshot import Item, Kind
from orchestrator.core.errors import BadRequestError
from orchestrator.core.protocol.tree import plain_link, stays_inside

_log = logging.getLogger(__name__)

_SHOWN = 3
_PLACES = 12

Follow = Callable[[str, str], bool]
"""Called with a link's path in the tree and its real target outside of the source; returns whether to follow it."""


def walk(source: Path, follow: Follow) -> Iterator[Item]:
    """Yield a folder's content, or a single file with an empty path.

    Links inside the source are yielded as relative links, which work on every machine. Links that lead out are
    followed, if allowed. Sockets, devices and pipes are left out with a warning.

    Raises:
        BadRequestError: something can't be read, a link may not be followed, or the source has become a link.
    """
    try:
        if source.is_symlink():
            raise BadRequestError(
                f"{source} is a link",
                why="it wasn't one when the plan was made, and the plan shows where data comes from",
                fix="run it again with a new plan",
            )
        if source.is_dir():
            yield from _Walk(str(source), follow).items()
        else:
            source.stat()
            yield Item(Kind.FILE, "", str(source))
    except OSError as err:
        raise unreadable(err, str(source)) from err


def unreadable(err: OSError, source: str) -> BadRequestError:
    """Return the error for a file or folder that can't be read."""
    return BadRequestError(
        f"{err.filename or source} can't be read",
        why=err.strerror or str(err),
        fix="make it readable, remove it, or correct `file_mounts` or `data` in the job file",
    )


def find_places(source: Path) -> tuple[str, ...]:
    """Return the folders outside of a source that contain its links' targets, sorted, at most twelve.

    Raises:
        BadRequestError: something can't be read.
    """
    found: set[str] = set()

    def note(_path: str, real: str) -> bool:
        found.add(real)
        return True

    for _ in walk(source, note):
        pass
    places = {path if len(found) <= _PLACES else os.path.dirname(path) for path in found}  # noqa: PTH120 - text
    while len(places) > _PLACES:
        deepest = max(places, key=lambda place: (place.count("/"), place))
        places = places - {deepest} | {os.path.dirname(deepest)}  # noqa: PTH120
    return tuple(sorted(places))


def refuse_leaving(source: Path) -> None:
    """Refuse a source with links that lead out of it.

    Raises:
        BadRequestError: there are such links, and the error names some; or something can't be read.
    """
    found: list[tuple[str, str]] = []

    def note(path: str, real: str) -> bool:
        found.append((path, real))
        if len(found) > _SHOWN:
            raise _leaves(found)
        return False

    for _ in walk(source, note):
        pass
    if found:
        raise _leaves(found)


def must_copy(source: Path, places: Sequence[str]) -> bool:
    """Check the source again just before it is sent; tell whether some links are replaced by their targets.

    Raises:
        BadRequestError: a link leads out of the source, but not to these places.
    """
    return sum(item.is_copied for item in walk(source, only_to(places))) > 0


def only_to(places: Sequence[str]) -> Follow:
    """Return a function that allows only links to these places, and to paths below them."""

    def follow(path: str, real: str) -> bool:
        if not any(real == place or real.startswith(f"{place.rstrip('/')}/") for place in places):
            raise _leaves([(path, real)])
        return True

    return follow


class _Folder(NamedTuple):
    """A folder that has yet to be listed.

    Attributes:
        above: the real paths of the folders above it that a link could lead back to.
    """

    path: str
    source: str
    above: tuple[str, ...] = ()
    is_copied: bool = False


class _Walk:
    def __init__(self, source: str, follow: Follow) -> None:
        self._root = os.path.realpath(source)
        self._follow = follow
        # Not recursive: results of machines may be nested as deeply as a path is long.
        self._waiting = [_Folder("", source)]

    def items(self) -> Iterator[Item]:
        while self._waiting:
            folder = self._noted(self._waiting.pop())
            with os.scandir(folder.source) as listing:
                children = sorted(listing, key=lambda child: child.name, reverse=True)
            if not children and folder.path:
                yield Item(Kind.EMPTY_FOLDER, folder.path, folder.source, is_copied=folder.is_copied)
            for child in children:
                if item := self._look(folder, child):
                    yield item

    def _noted(self, folder: _Folder) -> _Folder:
        """Add a folder to its own `above`, if a link could lead back to it."""
        if folder.path and not folder.is_copied:
            return folder
        real = os.path.realpath(folder.source)
        if real in folder.above:
            raise BadRequestError(
                f"the link {folder.source!r} leads to a folder that contains it",
                why="its content would never end",
                fix="remove it",
            )
        return folder._replace(above=(*folder.above, real))

    def _look(self, folder: _Folder, child: os.DirEntry[str]) -> Item | None:
        path = f"{folder.path}/{child.name}" if folder.path else child.name
        is_copied = folder.is_copied
        if child.is_symlink():
            target = os.readlink(child.path)  # noqa: PTH115 - bytes that are no UTF-8 must stay what they are
            real = os.path.realpath(child.path)
            if self._is_inside(real):
                link = target if stays_inside(path, target) else plain_link(path, os.path.relpath(real, self._root))
                return Item(Kind.LINK, path, child.path, link, is_copied=target.startswith("/"))
            if not self._follow(path, real):
                return None
            is_copied = True
            # The target must exist.
            child.stat()
        if child.is_dir():
            self._waiting.append(_Folder(path, child.path, folder.above, is_copied))
            return None
        if child.is_file():
            return Item(Kind.FILE, path, child.path, is_copied=is_copied)
        _log.warning("%s is neither a file, a folder nor a link, and is left out", child.path)
        return None

    def _is_inside(self, real: str) -> bool:
        return real == self._root or real.startswith(f"{self._root.rstrip('/')}/")


def _leaves(found: Sequence[tuple[str, str]]) -> BadRequestError:
    named = ", ".join(f"{path!r} to {real!r}" for path, real in found[:_SHOWN])
    more = ", and others" if len(found) > _SHOWN else ""
    return BadRequestError(
        f"the data has a link that leaves it: {named}{more}",
        why="its target would be sent, whoever created the link",
        fix="remove it, or write `follow_links: true` beside `source` under `data`: the plan shows where they lead",
    )
