"""Tells which of the laptop's folders hold results: a machine, which may be hostile, named every file in them."""

from __future__ import annotations

from pathlib import Path

RESULTS = "kedge-results"
"""The folder that holds a folder of results for each run."""

RESULTS_MARKER = ".kedge-results"
"""A marker file in any other folder that results were copied to."""


def is_among_results(path: Path) -> bool:
    """Tell whether a file is among results."""
    return any(folder.parent.name == RESULTS or (folder / RESULTS_MARKER).is_file() for folder in path.parents)
