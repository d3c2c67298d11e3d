"""What lies in a job's working folder on the laptop and isn't sent, because it is ignored."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.core.units import format_bytes

_NAMED = 3
_NAME_LENGTH = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsentPath:
    """A file, or a folder of which nothing is sent.

    Attributes:
        path: relative to the working folder; a folder's ends with a slash.
        files: in it.
        is_whole: all of it was counted.
    """

    path: str
    files: int
    bytes: int
    is_whole: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsent:
    """What isn't sent.

    Attributes:
        by: who ignores it: `git`, `.kedgeignore`, or both.
        files: how many, those in folders included.
        paths: the biggest first, some of them.
        is_whole: all of it was counted.
    """

    by: str
    files: int
    bytes: int
    paths: tuple[UnsentPath, ...]
    is_whole: bool = True


def describe_unsent(unsent: Unsent) -> tuple[str, ...]:
    """Say what isn't sent: how much, then the biggest of it, one on each line."""
    least = "" if unsent.is_whole else "more than "
    files = "1 file" if unsent.files == 1 else f"{unsent.files:,} files"
    shown = unsent.paths[:_NAMED]
    rest = unsent.files - sum(path.files for path in shown)
    return (
        f"not sent (see `data`): {least}{files}, {format_bytes(unsent.bytes)}, ignored by {unsent.by}",
        *(f"  {_describe_path(path)}" for path in shown),
        *([f"  {rest:,} more"] if rest > 0 else []),
    )


def _describe_path(path: UnsentPath) -> str:
    name = path.path if len(path.path) <= _NAME_LENGTH else f"...{path.path[-_NAME_LENGTH:]}"
    return f"{name} ({'' if path.is_whole else 'more than '}{format_bytes(path.bytes)})"
