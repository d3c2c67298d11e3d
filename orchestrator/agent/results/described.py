"""What the laptop is told about files: the agent's side of orchestrator/core/protocol/results.py (see base/wire.py)."""

from __future__ import annotations

from ..base.record import Record


class ResultFile(Record):
    """One of a run's results; the laptop's results.py documents each field."""

    path: str
    bytes: int
    sha256: str
    link: str = ""
    left_out: str = ""


class LeftFile(Record):
    """A file that a command wrote outside its outputs."""

    path: str
    bytes: int
    left_out: str = ""


class LeftBehind(Record):
    """The files that a command wrote outside its outputs; the laptop's results.py documents each field."""

    files: int = 0
    bytes: int = 0
    kept: int = 0
    kept_bytes: int = 0
    named: tuple[LeftFile, ...] = ()
    empty: tuple[str, ...] = ()
    is_whole: bool = True
