"""Which folders of the laptop hold results: a machine has named every file in them, and may be hostile."""

from __future__ import annotations

from pathlib import Path

RESULTS = "kedge-results"
"""The folder in which each run's results get a folder of their own."""

MARK = ".kedge-results"
"""A file in any other folder that results were copied to."""


def came_home(path: Path) -> bool:
    """Tell whether a file lies among results."""
    return any(folder.parent.name == RESULTS or (folder / MARK).is_file() for folder in path.parents)
