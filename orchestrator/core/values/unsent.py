"""Describes the ignored files of a job's working folder, which aren't sent."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.core.values.units import format_bytes

_NAMED = 3
_NAME_LENGTH = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsentPath:
    """A file, or a folder whose whole content isn't sent.

    Attributes:
        path: relative to the working folder; ends with a slash for a folder.
        files: how many it contains.
        is_whole: all of it was counted.
    """

    path: str
    files: int
    bytes: int
    is_whole: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsent:
    """The files that aren't sent.

    Attributes:
        by: what ignores them: `git`, `.kedgeignore`, or both.
        files: how many, including those in folders.
        paths: some of them, the largest first.
        is_whole: all of it was counted.
    """

    by: str
    files: int
    bytes: int
    paths: tuple[UnsentPath, ...]
    is_whole: bool = True


def describe_unsent(unsent: Unsent) -> tuple[str, ...]:
    """Describe what isn't sent, one line each: the total, then the largest files and folders."""
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
