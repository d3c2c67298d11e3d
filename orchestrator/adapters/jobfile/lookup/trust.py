"""Refuses settings and job files that another user may have written, unless the user names the job file."""

from __future__ import annotations

import grp
import os
import pwd
import stat
from pathlib import Path

from orchestrator.adapters.incoming.results_folders import is_among_results
from orchestrator.core.errors import BadRequestError


def refuse_foreign_job(path: Path) -> None:
    """Refuse a job file that was found, not named, if another user owns or may write it, as git does.

    A file among fetched results is refused too, because a machine wrote it.

    Raises:
        BadRequestError: others may write the file or its folder, or it is among fetched results.
    """
    if why := f"{path} was fetched with results" if is_among_results(path) else _why_foreign(path):
        raise BadRequestError(
            f"{why}: it isn't used unless you name it",
            why="whoever writes a job file decides what runs with your code, your secrets and your money",
            fix=f"to use it, name it: --job {path}",
        )


def refuse_foreign_settings(path: Path) -> None:
    """Refuse settings that another user may have written.

    Raises:
        BadRequestError: others may write the file or its folder.
    """
    if why := _why_foreign(path):
        raise BadRequestError(
            f"{why}: it isn't used as your settings",
            why="they say in which network your machines are, and what your computer runs to reach them",
            fix=f"check it, then make it yours: chmod go-w {path} {path.parent}, or chown where another owns it",
        )


def _why_foreign(path: Path) -> str:
    """Say why another user may have written a file; empty if nobody else can have."""
    file, folder = path.stat(), path.parent.stat()
    # A link's owner chooses its target, and so the files beside which the user's job file is read.
    owned = ((f"{path}", path.lstat()), (f"{path}", file), (f"{path} lies in a folder that", folder))
    for where, found in owned:
        if found.st_uid not in {0, os.getuid()}:
            return f"{where} belongs to {_name_user(found.st_uid)}"
    # In a sticky folder such as /tmp, others can create files, but not replace the user's.
    is_open = _others_may_write(file) or (_others_may_write(folder) and not folder.st_mode & stat.S_ISVTX)
    return f"others may write {path}" if is_open else ""


def _others_may_write(found: os.stat_result) -> bool:
    by_group = found.st_mode & stat.S_IWGRP and not _is_own_group(found.st_gid)
    return bool(found.st_mode & stat.S_IWOTH or by_group)


def _is_own_group(gid: int) -> bool:
    """Tell whether a group is the user's private one, as many distributions create (login.defs, USERGROUPS_ENAB)."""
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
