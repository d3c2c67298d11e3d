"""Which folders of the laptop hold results: a machine has named every file in them, and may be hostile."""

from __future__ import annotations

import os
from pathlib import Path

RESULTS = "kedge-results"
"""The folder in which each run's results get a folder of their own."""

MARK = ".kedge-results"
"""A file in any other folder that results were copied to."""


def is_home(folder: Path) -> bool:
    """Tell whether a folder is one that kedge copies a run's results to."""
    return folder.parent.name == RESULTS or (folder / MARK).is_file()


def came_home(path: Path) -> bool:
    """Tell whether a file lies among results."""
    return any(is_home(folder) for folder in path.parents)


def holds_others(folder: Path) -> bool:
    """Tell whether something lies in a folder that isn't known to be one for results."""
    if is_home(folder):
        return False
    try:
        with os.scandir(folder) as entries:
            return next(entries, None) is not None
    except (FileNotFoundError, NotADirectoryError):
        return False
