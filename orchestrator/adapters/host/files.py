"""Writes kedge's files on the laptop without following links, and reads small files that others wrote.

Nothing is written through a link, because a link in a cloned repository could lead kedge to any file of the user's.
Everything that writes under a name that others can predict goes through this module; `tests/unit/test_writers.py`
searches the source for exceptions.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from orchestrator.core.errors import BadRequestError

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_LINK_ERRORS = frozenset({errno.ELOOP, errno.ENOTDIR, errno.EMLINK})


def write_atomically(
    path: Path, content: bytes, *, mode: int = 0o600, durable: bool = False, within: Path | None = None
) -> None:
    """Replace a file as a whole: a reader sees the old content or the new, never a part.

    Args:
        path: missing folders are created, private to the user.
        content: all of it.
        mode: the permission bits.
        durable: content and name survive a crash of the computer once this returns.
        within: as for `opened_folder`.

    Raises:
        BadRequestError: the file or its folder is a link, or something else that kedge doesn't replace.
    """
    with opened_folder(path.parent, within=within) as folder:
        _require_plain(path, folder)
        aside = f".{path.name[:60]}.{os.urandom(4).hex()}"
        handle = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=folder)
        try:
            with open(handle, "wb") as file:  # noqa: PTH123 - a descriptor, not a path
                file.write(content)
                os.fchmod(file.fileno(), mode)
                if durable:
                    file.flush()
                    os.fsync(file.fileno())
            os.replace(aside, path.name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(aside, dir_fd=folder)
            raise
        if durable:
            # The name is on the disk only once the folder is synced.
            os.fsync(folder)


def open_to_write(path: Path, *, append: bool = False, mode: int = 0o600) -> IO[bytes]:
    """Open one of kedge's own files (log, lock or stream) for writing; a missing one is created, private to the user.

    Args:
        path: its folder is created if it is missing.
        append: keep the file's content.
        mode: the permission bits of a new file.

    Raises:
        BadRequestError: the file or its folder is a link, or the file isn't a regular file.
    """
    with opened_folder(path.parent) as folder:
        _require_plain(path, folder)
        how = os.O_APPEND if append else os.O_TRUNC
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | how
        return os.fdopen(os.open(path.name, flags, mode, dir_fd=folder), "ab" if append else "wb")


def make_folder(path: Path, *, within: Path | None = None) -> None:
    """Create a folder, private to the user, unless it exists.

    Args:
        path: the folder.
        within: as for `opened_folder`.

    Raises:
        BadRequestError: it is a link, or not a folder.
    """
    with opened_folder(path, within=within):
        pass


def make_destination(path: Path) -> None:
    """Create the folder that results are copied to; neither it nor its parent may be a link.

    Raises:
        BadRequestError: one of them is a link, or not a folder.
    """
    make_folder(path, within=path.parent.parent)


def require_no_link(path: Path, *, within: Path) -> None:
    """Refuse a path below a folder if it, or a folder on the way to it, is a link; none of them has to exist.

    Raises:
        BadRequestError: one is a link; the error names it.
    """
    place = within
    for part in path.relative_to(within).parts:
        place /= part
        if place.is_symlink():
            raise _link(place)


@contextlib.contextmanager
def opened_folder(path: Path, *, within: Path | None = None) -> Iterator[int]:
    """Create a folder unless it exists, and yield its descriptor.

    Args:
        path: the folder.
        within: a folder that may be reached through links, as a user's home may; below it no link is followed.
            Default: the parent of `path`.

    Raises:
        BadRequestError: a link, or something that isn't a folder, is in the way.
    """
    base = path.parent if within is None else within
    base.mkdir(parents=True, exist_ok=True, mode=0o700)
    here = os.open(base, _FOLDER)
    place = base
    try:
        for part in path.relative_to(base).parts:
            place /= part
            here = _enter(place, here)
        yield here
    finally:
        os.close(here)


def read_small(path: Path, *, limit: int) -> bytes:
    """Read a file that somebody else may have put there; pipes, devices and large files are refused.

    Raises:
        FileNotFoundError: there is no such file.
        BadRequestError: it isn't a regular file, is larger than the limit, or can't be read.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise BadRequestError(f"{path} is not a regular file", fix="remove it, or put a regular file there")
        # Non-blocking, in case it has become a pipe since.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:  # noqa: PTH123 - as above
            content = file.read(limit + 1)
    except FileNotFoundError:
        raise
    except OSError as err:
        raise BadRequestError(
            f"{path} can't be read", why=err.strerror or str(err), fix="remove it, or make it readable"
        ) from err
    if len(content) > limit:
        raise BadRequestError(f"{path} is too large", why=f"it has more than {limit} bytes", fix="shorten it")
    return content


def _enter(place: Path, above: int) -> int:
    """Open a folder inside another and close the outer one's descriptor; a missing folder is created."""
    try:
        below = _open_folder(place, above)
    except FileNotFoundError:
        with contextlib.suppress(FileExistsError):
            os.mkdir(place.name, 0o700, dir_fd=above)
        below = _open_folder(place, above)
    os.close(above)
    return below


def _open_folder(place: Path, above: int) -> int:
    try:
        return os.open(place.name, _FOLDER | os.O_NOFOLLOW, dir_fd=above)
    except OSError as err:
        if err.errno in _LINK_ERRORS:
            raise _link(place) if place.is_symlink() else _no_folder(place) from err
        raise


def _require_plain(path: Path, folder: int) -> None:
    try:
        found = os.stat(path.name, dir_fd=folder, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return
    if stat.S_ISLNK(found):
        raise _link(path)
    if not stat.S_ISREG(found):
        raise BadRequestError(
            f"{path} is not a regular file", why="kedge would write to it", fix="name another file, or remove this one"
        )


def _link(place: Path) -> BadRequestError:
    return BadRequestError(
        f"{place} is a link",
        why="kedge doesn't write through links: one in a repository could lead it to any file of yours",
        fix="remove the link, or put a real file or folder in its place",
    )


def _no_folder(place: Path) -> BadRequestError:
    return BadRequestError(f"{place} is not a folder", why="kedge would write into it", fix="move it out of the way")
