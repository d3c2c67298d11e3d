"""Parses paths of a job file: on the laptop, and in the machine's working folder."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from itertools import permutations
from pathlib import Path, PurePosixPath

from orchestrator.adapters.jobfile.problems import quoted
from orchestrator.core.errors import BadRequestError
from orchestrator.core.protocol.choice import has_wildcard, literal_folder
from orchestrator.core.values.printable import require_printable
from orchestrator.core.values.wildcards import can_match

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}|\$([A-Za-z_][A-Za-z0-9_]*)", re.ASCII)


def relative_folder(text: str) -> str:
    """Return a path in the working folder, normalized: `./results/` is `results`.

    Raises:
        BadRequestError: it is absolute, is the working folder itself, leads out of it, or has unprintable characters.
    """
    path = PurePosixPath(require_printable(text.strip()))
    if path.is_absolute() or text.strip().startswith("~"):
        raise BadRequestError(
            f"{quoted(text)} is not within the working folder",
            why="kedge keeps all of a run in a folder of its own; the machine's / and ~ stay as they are",
            fix=f"write {path.name or 'data'}, and use that path in `run`",
        )
    if ".." in path.parts or not path.parts:
        fault = "leads out of the working folder" if path.parts else "names no folder"
        raise BadRequestError(
            f"{quoted(text)} {fault}",
            why="paths on the machine are relative to the folder that `run` starts in",
            fix="write for example results or data/train",
        )
    return str(path)


def output_path(text: str) -> str:
    """Return a folder of results, or a pattern of results, normalized.

    Raises:
        BadRequestError: as `relative_folder`, or a pattern doesn't begin with the name of a folder, or has no end.
    """
    path = relative_folder(text)
    if has_wildcard(path) and not literal_folder(path):
        raise BadRequestError(
            f"{quoted(text)} begins with a wildcard",
            why="a folder of results must have a name, because it is kept apart from the code",
            fix=f"write for example results/{path}, and let `run` write there",
        )
    if not can_match(path.encode()):
        raise BadRequestError(
            f"{quoted(text)} can't match anything",
            why="it ends within a set of letters, or after a backslash",
            fix="end the set, as in results/[ab]*.png",
        )
    return path


def variables_in(text: str) -> tuple[str, ...]:
    """List the variables in a path."""
    return tuple(match[1] or match[2] for match in _VARIABLE.finditer(text))


def expand_variables(text: str, envs: Mapping[str, str]) -> str:
    """Expand the job's own variables; others stay as they are."""
    return _VARIABLE.sub(lambda match: envs.get(match[1] or match[2], match[0]), text)


def laptop_path(text: str, base: Path) -> Path:
    """Return the absolute path of an existing file or folder on the laptop.

    Args:
        text: relative to the base, absolute, or beginning with `~`.
        base: the job file's folder.

    Raises:
        BadRequestError: it doesn't exist, or is an address.
    """
    if match := _URL.match(text):
        raise BadRequestError(
            f"{quoted(text)} is an address",
            why=f"a folder of this computer is sent here; what machines fetch from {match[1]}:// goes under `data`",
            fix="name the folder, or put the address under `data`",
        )
    require_printable(text.strip())
    try:
        path = (base / Path(text.strip()).expanduser()).resolve()
        there = path.exists()
    except (OSError, RuntimeError, ValueError) as err:
        raise BadRequestError(f"{quoted(text)} is not a path that can be read", why=str(err)) from err
    if not there or not text.strip():
        raise BadRequestError(
            f"{quoted(text)} is not there",
            why=f"there is no {path}; paths are relative to the job file's folder",
            fix="correct the path, or make the folder",
        )
    return path


def is_through_link(text: str, base: Path) -> bool:
    """Tell whether a path in the job file is a link or leads through one, below the job file's folder."""
    top = base.resolve()
    path = Path(os.path.normpath(top / Path(text.strip()).expanduser()))
    return path != path.resolve()


def find_overlap(folders: Sequence[tuple[str, str]]) -> tuple[str, str, str] | None:
    """Find two folders that are the same, or one of which contains the other.

    Args:
        folders: pairs of a job file's key and a relative path.

    Returns:
        The inner one's key and path, and the outer one's path; None if no two overlap.
    """
    for (_, outer), (key, inner) in permutations(folders, 2):
        if f"{inner}/".startswith(f"{outer}/"):
            return key, inner, outer
    return None
