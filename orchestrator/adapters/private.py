"""Folders and files that this user alone may enter or read, whatever was there before."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from pathlib import Path

from orchestrator.core.errors import BadRequestError

_OTHERS = 0o077
_SETTINGS = "point KEDGE_STATE_DIR and KEDGE_RUNTIME_DIR to folders of your own"


def make_private_folder(path: Path) -> Path:
    """Make a folder for this user alone; one that is there is taken when it is the user's, and narrowed.

    Raises:
        BadRequestError: it is a link, no folder, or somebody else's: they could have it lead anywhere, or look into it.
    """
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700, parents=True)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode):
        what = "a link" if stat.S_ISLNK(found.st_mode) else "not a folder"
        raise BadRequestError(
            f"{path} is {what}", why="kedge keeps keys and sockets there", fix=f"remove it, or {_SETTINGS}"
        )
    if found.st_uid != os.getuid():
        raise BadRequestError(
            f"{path} belongs to somebody else", why="kedge keeps keys and sockets there", fix=_SETTINGS
        )
    if stat.S_IMODE(found.st_mode) != 0o700:
        _narrow(path)
    return path


def short_folder(folder: Path, longest: int) -> Path:
    """Return a folder for sockets; where its path has more bytes than that, one in /tmp, always the same."""
    if len(os.fsencode(folder)) <= longest:
        return folder
    name = hashlib.sha256(os.fsencode(folder)).hexdigest()[:12]
    return Path("/tmp", f"kedge-{os.getuid()}-{name}")  # noqa: S108 - made 0700, and refused if it isn't ours


def follow_own_link(path: Path) -> Path:
    """Return where a path leads that may be a link of the user's own, as a folder moved to another disk is.

    Raises:
        BadRequestError: the link is somebody else's.
    """
    if not path.is_symlink():
        return path
    if path.lstat().st_uid not in {0, os.getuid()}:
        raise BadRequestError(f"{path} is a link of somebody else's", why="it may lead anywhere", fix=_SETTINGS)
    return path.resolve()


def keep_file_private(path: Path) -> None:
    """See to it that a file is there and nobody else can read it; its content stays."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        # By its name: closing a descriptor of a SQLite file lets go of all locks that this process has on it.
        if path.stat().st_mode & _OTHERS:
            path.chmod(0o600)


def _narrow(path: Path) -> None:
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        os.fchmod(folder, 0o700)
    finally:
        os.close(folder)
