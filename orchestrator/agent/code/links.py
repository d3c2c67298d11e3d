"""Links outputs, checkpoints and data into a working folder, so that they survive a change of code.

A file of the code with such a name is moved aside and kept, because the next release may build on it.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from ..base.layout import Layout, TaskLayout
from ..base.parse import clean_relative
from ..base.wire import RunConfig, TaskConfig


def aside(release: Path) -> Path:
    """Return the folder for a release's files that links have replaced."""
    return release.with_name(f".{release.name}.aside")


def link_results(task: TaskLayout, config: TaskConfig, folder: Path) -> None:
    """Link a task's outputs and checkpoints into its working folder; existing links are left alone."""
    for output in config.outputs:
        path = clean_relative(output)
        _link_folder(folder, path, task.output / path)
    if config.checkpoints:
        _link_folder(folder, clean_relative(config.checkpoints), task.checkpoints)


def link_data(layout: Layout, config: RunConfig, release: Path) -> None:
    """Link a run's data into a release; existing links are left alone."""
    for target in config.data:
        path = clean_relative(target)
        (layout.data / path).parent.mkdir(parents=True, exist_ok=True)
        _replace(release, path, layout.data / path)


def _link_folder(release: Path, path: str, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    existing = release / path
    if existing.is_dir() and not existing.is_symlink():
        _copy_missing(existing, target)
    _replace(release, path, target)


def _copy_missing(source: Path, target: Path) -> None:
    """Copy the code's files, except where a result of that name exists, which is newer."""
    for folder, names, files in os.walk(source):
        here = target / Path(folder).relative_to(source)
        here.mkdir(parents=True, exist_ok=True)
        for name in [*files, *(name for name in names if (Path(folder) / name).is_symlink())]:
            if not os.path.lexists(here / name):
                shutil.copy2(Path(folder) / name, here / name, follow_symlinks=False)


def _replace(release: Path, path: str, target: Path) -> None:
    link = release / path
    if link.is_symlink() and str(link.readlink()) == str(target):
        return
    if link.is_symlink() and link.readlink().is_absolute():
        # An absolute link is from an earlier run: the code's own links are relative.
        link.unlink()
    if os.path.lexists(link):
        kept = aside(release) / path
        kept.parent.mkdir(parents=True, exist_ok=True)
        link.replace(kept)
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(target)
