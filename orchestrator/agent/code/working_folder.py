"""The folders in which a run's several tasks work: each has its own copy of the release, so that none disturbs another.

What `setup` has written into the release is part of the copy, and data is linked as in the release. What the only task
of a run's first mode has written there isn't, because a later mode starts fresh.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from ..base.config import earlier_modes
from ..base.files import read_json
from ..base.layout import TaskLayout
from . import releases
from .changed_files import find_changed
from .links import aside

_LOOKING_SECONDS = 60.0


def working_folder(task: TaskLayout, release: Path) -> Path:
    """Return the folder in which a task works on a release: the release itself for a task without a key."""
    return release.with_name(f"{release.name}@{task.key.replace('/', '@')}") if task.key else release


def fill_working_folder(task: TaskLayout, release: Path, folder: Path, *, setup: str) -> None:
    """Copy a release to a task's working folder, unless that was done before.

    Args:
        task: whose folder it is.
        release: the code, in which `setup` has run.
        folder: the task's folder.
        setup: identifies the last run of `setup`: an earlier copy lacks what that has written.
    """
    if folder.is_dir() and releases.read_record(folder).get("setup", "") == setup:
        return
    with releases.incoming(task.machine) as draft:
        shutil.copytree(release, draft, symlinks=True, dirs_exist_ok=True)
        _undo_result_links(task, release, draft)
        _forget_first_mode(task, release, draft)
        releases.remove(folder)
        releases.write_record(folder, {**releases.read_record(release), "own": True, "setup": setup})
        draft.replace(folder)


def _forget_first_mode(task: TaskLayout, release: Path, draft: Path) -> None:
    """Remove the files that a command has written while it worked in the release itself, in the run's first mode."""
    began = read_json(task.machine.task("").begin_file).get("time")
    first = next((mode for mode in earlier_modes(task.machine) if not mode.sequence), None)
    if not isinstance(began, int | float) or first is None:
        return
    for file in find_changed(release, time.time() + _LOOKING_SECONDS).files:
        if began <= file.mtime_ns / 1e9 <= first.command.since:
            (draft / file.path).unlink(missing_ok=True)


def _undo_result_links(task: TaskLayout, release: Path, draft: Path) -> None:
    """Put the code's own files back where the release has links to results of a task that works in it."""
    links = [path for path in draft.rglob("*") if path.is_symlink() and path.readlink().is_absolute()]
    for link in links:
        if link.readlink().is_relative_to(task.machine.results):
            link.unlink()
            own = aside(release) / link.relative_to(draft)
            if own.is_dir():
                shutil.copytree(own, link, symlinks=True)
            elif own.exists():
                shutil.copy2(own, link)
