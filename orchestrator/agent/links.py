"""Put what outlives a change of code into the code's folder: outputs, checkpoints and data, as links.

What the code itself brings under such a name is moved aside, because the next release may build on it.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from .layout import Layout
from .parse import clean_relative
from .wire import RunConfig


def aside(release: Path) -> Path:
    """Return where a release keeps what links have replaced."""
    return release.with_name(f".{release.name}.aside")


def apply_links(layout: Layout, config: RunConfig, release: Path) -> None:
    """Make every link of a run in a release; what is in place already is left alone."""
    for folder in config.outputs:
        path = clean_relative(folder)
        _link_folder(release, path, layout.output / path)
    if config.checkpoints:
        _link_folder(release, clean_relative(config.checkpoints), layout.checkpoints)
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
    """Copy what the code brings; a result of that name is newer and stays."""
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
        # Of an earlier run: no link of the code's own is absolute.
        link.unlink()
    if os.path.lexists(link):
        kept = aside(release) / path
        kept.parent.mkdir(parents=True, exist_ok=True)
        link.replace(kept)
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(target)
