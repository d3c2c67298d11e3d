"""Which job files are taken without being named: those that nobody else could have put there."""

from __future__ import annotations

import grp
import os
import pwd
import stat
from pathlib import Path

from orchestrator.adapters.homes import came_home
from orchestrator.core.errors import BadRequestError


def refuse_foreign(path: Path) -> None:
    """Refuse a job file that was found, not named, and that another user owns or may write, as git does.

    One among results was written by a machine, whoever owns it.

    Raises:
        BadRequestError: the file, or the folder that it lies in, is open to others, or it came home with results.
    """
    if came_home(path):
        raise _refusal(path, f"{path} came home with results")
    file, folder = path.stat(), path.parent.stat()
    # Who owns a link chooses beside which files a job file of ours is read.
    owned = ((f"{path}", path.lstat()), (f"{path}", file), (f"{path} lies in a folder that", folder))
    for where, found in owned:
        if found.st_uid not in {0, os.getuid()}:
            raise _refusal(path, f"{where} belongs to {_name_user(found.st_uid)}")
    # In a folder like /tmp others can make files, but not replace ours.
    if _others_may_write(file) or (_others_may_write(folder) and not folder.st_mode & stat.S_ISVTX):
        raise _refusal(path, f"others may write {path}")


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


def _refusal(path: Path, what: str) -> BadRequestError:
    return BadRequestError(
        f"{what}: it is not taken without being named",
        why="whoever writes a job file says what runs with your code, your secrets and your money",
        fix=f"if it is the one that you mean, name it: --job {path}",
    )
