"""Chooses and checks the folder of results on the laptop: strangers may have written to the project around it."""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path

from orchestrator.adapters.host.files import read_small, require_no_link, write_atomically
from orchestrator.adapters.incoming.results_folders import RESULTS, RESULTS_MARKER
from orchestrator.core.errors import BadRequestError, NonsenseError
from orchestrator.core.protocol.decoding import ANSWER_BYTES
from orchestrator.core.protocol.results import LeftBehind, parse_left_behind

_HIDDEN = ".gitignore"
_LEFT_BEHIND = "left-behind.json"
_MARKED = b"Results of kedge's runs: machines have named and written everything here.\n"


def results_folder(base: Path, run_id: str) -> Path:
    """Return the folder of a run's results."""
    return base / RESULTS / run_id


def require_own_folder(destination: Path, cwd: Path) -> None:
    """Refuse a destination that links would redirect, before anything is rented.

    Raises:
        BadRequestError: a link redirects it; the error names the link.
    """
    require_no_link(destination, within=_trusted(destination, cwd))
    if _is_usual(destination):
        require_no_link(destination.parent / _HIDDEN, within=destination.parent)


def require_no_others(destination: Path, fetched_to: Container[str]) -> None:
    """Refuse a folder that the user has named if it holds anything but results of the same run.

    Args:
        destination: the folder, which may not exist yet.
        fetched_to: where the run's results are copied to by default, or were copied before.

    Raises:
        BadRequestError: it holds other files.
    """
    if str(destination) in fetched_to or not destination.is_dir():
        return
    if next(destination.iterdir(), None) is not None:
        raise BadRequestError(
            f"{destination} holds other files",
            why="a machine names its results: one could replace any file there, such as .git/config or kedge.yaml",
            fix="name a folder that is new or empty",
        )


def prepare_results(destination: Path, cwd: Path) -> None:
    """Check again, and mark the folder: a git repository around it neither commits the results nor sends them as code.

    Raises:
        BadRequestError: a link is in the way.
    """
    require_own_folder(destination, cwd)
    if _is_usual(destination):
        write_atomically(destination.parent / _HIDDEN, b"*\n", mode=0o644)
    else:
        write_atomically(destination / RESULTS_MARKER, _MARKED, mode=0o644)


def read_left_behind(folder: Path) -> LeftBehind | None:
    """Read what a run's command wrote outside of its outputs, from fetched results; None if the list isn't there.

    A list that can't be read is ignored: the machine has written it, and the results are valid without it.
    """
    path = folder / _LEFT_BEHIND
    if path.is_symlink():
        return None
    try:
        return parse_left_behind(read_small(path, limit=ANSWER_BYTES))
    except (FileNotFoundError, BadRequestError, NonsenseError):
        return None


def _is_usual(destination: Path) -> bool:
    return destination.parent.name == RESULTS


def _trusted(destination: Path, cwd: Path) -> Path:
    """Return the folder that the user is in, or has named: below it, a repository may have placed links."""
    if _is_usual(destination):
        return destination.parent.parent
    return cwd if destination.is_relative_to(cwd) else destination.parent
