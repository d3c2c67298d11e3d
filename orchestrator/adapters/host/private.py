"""Makes folders and files private to the user, whatever was there before."""

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
    """Create a private folder; an existing one is accepted if the user owns it, and others lose their permissions.

    Raises:
        BadRequestError: it is a link, not a folder, or another user's, who could redirect it or read what is in it.
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
            f"{path} belongs to another user", why="kedge keeps keys and sockets there", fix=_SETTINGS
        )
    if stat.S_IMODE(found.st_mode) != 0o700:
        _narrow(path)
    return path


def short_folder(folder: Path, longest: int) -> Path:
    """Return a folder for sockets; if its path is longer than `longest` bytes, a fixed substitute in /tmp."""
    if len(os.fsencode(folder)) <= longest:
        return folder
    name = hashlib.sha256(os.fsencode(folder)).hexdigest()[:12]
    return Path("/tmp", f"kedge-{os.getuid()}-{name}")  # noqa: S108 - made 0700, and refused if it isn't ours


def follow_own_link(path: Path) -> Path:
    """Resolve a path that may be a link of the user's own, as after moving the folder to another disk.

    Raises:
        BadRequestError: the link belongs to another user.
    """
    if not path.is_symlink():
        return path
    if path.lstat().st_uid not in {0, os.getuid()}:
        raise BadRequestError(f"{path} is another user's link", why="it may lead anywhere", fix=_SETTINGS)
    return path.resolve()


def keep_file_private(path: Path) -> None:
    """Create a file unless it exists, and make it readable for the user alone; its content stays."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        # By name, because closing a descriptor of a SQLite file releases all locks that this process holds on it.
        if path.stat().st_mode & _OTHERS:
            path.chmod(0o600)


def _narrow(path: Path) -> None:
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        os.fchmod(folder, 0o700)
    finally:
        os.close(folder)
