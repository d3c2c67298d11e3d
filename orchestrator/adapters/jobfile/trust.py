"""Which settings are taken, and which job files without being named: those that nobody else could have written."""

from __future__ import annotations

import grp
import os
import pwd
import stat
from pathlib import Path

from orchestrator.adapters.homes import came_home
from orchestrator.core.errors import BadRequestError


def refuse_foreign_job(path: Path) -> None:
    """Refuse a job file that was found, not named, and that another user owns or may write, as git does.

    One among results was written by a machine, whoever owns it.

    Raises:
        BadRequestError: the file, or the folder that it lies in, is open to others, or it came home with results.
    """
    if why := f"{path} came home with results" if came_home(path) else _why_foreign(path):
        raise BadRequestError(
            f"{why}: it is not taken without being named",
            why="whoever writes a job file says what runs with your code, your secrets and your money",
            fix=f"if it is the one that you mean, name it: --job {path}",
        )


def refuse_foreign_settings(path: Path) -> None:
    """Refuse settings that somebody else may have written.

    Raises:
        BadRequestError: the file, or the folder that it lies in, is open to others.
    """
    if why := _why_foreign(path):
        raise BadRequestError(
            f"{why}: it is not taken as your settings",
            why="they say in which network your machines are, and what your computer runs to reach them",
            fix=f"look through it, then take it over: chmod go-w {path} {path.parent}, or chown where another owns it",
        )


def _why_foreign(path: Path) -> str:
    """Say why a file may be another user's work; empty where nobody else could have written it."""
    file, folder = path.stat(), path.parent.stat()
    # Who owns a link chooses what it leads to, and beside which files a job file of ours is read.
    owned = ((f"{path}", path.lstat()), (f"{path}", file), (f"{path} lies in a folder that", folder))
    for where, found in owned:
        if found.st_uid not in {0, os.getuid()}:
            return f"{where} belongs to {_name_user(found.st_uid)}"
    # In a folder like /tmp others can make files, but not replace ours.
    is_open = _others_may_write(file) or (_others_may_write(folder) and not folder.st_mode & stat.S_ISVTX)
    return f"others may write {path}" if is_open else ""


def _others_may_write(found: os.stat_result) -> bool:
    by_group = found.st_mode & stat.S_IWGRP and not _is_own_group(found.st_gid)
    return bool(found.st_mode & stat.S_IWOTH or by_group)


def _is_own_group(gid: int) -> bool:
    """Tell whether a group is the user's alone: many distributions make one for each (login.defs, USERGROUPS_ENAB)."""
    try:
        group, user = grp.getgrgid(gid), pwd.getpwuid(os.getuid())
    except KeyError:
        return False
    return group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}


def _name_user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
