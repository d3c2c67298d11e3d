"""Where results go on the laptop: into the user's project, whose other files a stranger may have written."""

from __future__ import annotations

from collections.abc import Container
from pathlib import Path

from orchestrator.adapters.files import read_small, require_no_link, write_atomically
from orchestrator.adapters.homes import MARK, RESULTS
from orchestrator.core.decoding import ANSWER_BYTES
from orchestrator.core.errors import BadRequestError, NonsenseError
from orchestrator.core.report import LeftBehind, parse_left_behind

_HIDDEN = ".gitignore"
_LEFT_BEHIND = "left-behind.json"
_MARKED = b"Results of kedge's runs: machines have named and written all that lies here.\n"


def results_folder(base: Path, run_id: str) -> Path:
    """Name the folder of a run's results."""
    return base / RESULTS / run_id


def require_own_folder(destination: Path, cwd: Path) -> None:
    """Refuse a destination that links would lead elsewhere, before anything is rented.

    Raises:
        BadRequestError: it names the link.
    """
    require_no_link(destination, within=_trusted(destination, cwd))
    if _is_usual(destination):
        require_no_link(destination.parent / _HIDDEN, within=destination.parent)


def require_no_others(destination: Path, fetched_to: Container[str]) -> None:
    """Refuse a folder that the user has named and that holds anything but results of the same run.

    Args:
        destination: the folder, which need not be there.
        fetched_to: where the run's results are copied to anyway, or have been before.

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
    """Look again, and mark the folder; in the user's repository results are neither committed nor sent with the code.

    Raises:
        BadRequestError: a link is in the way.
    """
    require_own_folder(destination, cwd)
    if _is_usual(destination):
        write_atomically(destination.parent / _HIDDEN, b"*\n", mode=0o644)
    else:
        write_atomically(destination / MARK, _MARKED, mode=0o644)


def read_left_behind(folder: Path) -> LeftBehind | None:
    """Read what a run's command has left behind, in results that were fetched; None where the machine says nothing.

    Nothing is told of a list that can't be read: the machine has written it, and the results stand without it.
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
    """Name the folder that the user stands in, or has named: below it a repository may have put links."""
    if _is_usual(destination):
        return destination.parent.parent
    return cwd if destination.is_relative_to(cwd) else destination.parent
