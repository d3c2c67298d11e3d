"""Parses the lists of a run's files: its results, and what the command wrote elsewhere.

The agent writes the same names in orchestrator/agent/base/wire.py; tests/contract/test_wire.py compares them.
"""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.core.protocol.decoding import Count, Name, Path, Size, Text, clip, decode, nonsense
from orchestrator.core.protocol.tree import is_tree_path


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultFile:
    """One of a run's results.

    Attributes:
        path: relative to the results, with forward slashes.
        link: a link's target, which stays inside the results; empty for a file.
        left_out: why the file isn't a result, although it lies there; empty for a result.
    """

    path: Path
    bytes: Size
    sha256: Name
    link: Path = ""
    left_out: Text = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftFile:
    """A file that a command wrote outside of its outputs.

    Attributes:
        path: relative to the working folder.
        left_out: why it isn't kept; empty if it is.
    """

    path: Path
    bytes: Size
    left_out: Text = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftBehind:
    """What a command wrote outside of its outputs, at its last end: `left-behind.json` in its results.

    Attributes:
        kept: how many of the files are in `left-behind/`.
        named: the newest of them.
        empty: `outputs`, and the folder for checkpoints, if they hold no file.
        is_whole: the whole working folder was searched.
    """

    files: Count = 0
    bytes: Size = 0
    kept: Count = 0
    kept_bytes: Size = 0
    named: tuple[LeftFile, ...] = ()
    empty: tuple[Path, ...] = ()
    is_whole: bool = True


def parse_left_behind(raw: bytes) -> LeftBehind:
    """Parse `left-behind.json`.

    Raises:
        NonsenseError: it is invalid.
    """
    return decode(raw, LeftBehind, what="its list of what was left behind")


def parse_results(raw: bytes) -> tuple[ResultFile, ...]:
    """Parse the output of `kedge-agent manifest`.

    Raises:
        NonsenseError: it isn't a list of distinct files within the results.
    """
    what = "its list of results"
    files = decode(raw, tuple[ResultFile, ...], what=what)
    if len({file.path for file in files}) < len(files):
        raise nonsense(what, "it names a file twice")
    outside = next((file.path for file in files if not is_tree_path(file.path)), None)
    if outside is not None:
        raise nonsense(what, f"{clip(outside)!r} leads out of the results")
    return files
