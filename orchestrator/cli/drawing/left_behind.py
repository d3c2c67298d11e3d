"""Describes files that a command wrote outside of its outputs, and where they are now."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.core.job import Job
from orchestrator.core.protocol.results import LeftBehind, LeftFile
from orchestrator.core.values.printable import clean_line
from orchestrator.core.values.units import format_bytes

_NAMED = 3
_NAME_LENGTH = 48


def left_behind_lines(found: LeftBehind, job: Job, folder: str, *, at_work: bool) -> list[str]:
    """Describe the machine's list; the machine may be hostile, so every line is cleaned.

    Args:
        found: the list.
        job: the job whose `outputs` and `checkpoints` it is about.
        folder: where the run's results are.
        at_work: the command was started again since: what was empty at its last end may not be empty now.
    """
    lines = [*_file_lines(found, folder), *([] if at_work else _empty_lines(found, job))]
    return [clean_line(line) for line in lines]


def _file_lines(found: LeftBehind, folder: str) -> list[str]:
    if not found.files:
        return []
    kept = [file for file in found.named if not file.left_out]
    lost = [file for file in found.named if file.left_out]
    least = "" if found.is_whole else "at least "
    were = "file was" if found.files == 1 else "files were"
    lines = [f"{least.capitalize()}{found.files:,} {were} written outside `outputs` ({format_bytes(found.bytes)})."]
    if found.kept:
        lines += [f"  Kept in {folder}/left-behind:", f"    {_name(kept, found.kept)}"]
    if found.kept < found.files:
        lines += [f"  Not kept, since {_reason(lost)}:", f"    {_name(lost, found.files - found.kept)}"]
    return [*lines, "  To get such files as results, list their folder under `outputs`."]


def _reason(lost: Sequence[LeftFile]) -> str:
    return lost[0].left_out if lost else "there were too many"


def _name(files: Sequence[LeftFile], count: int) -> str:
    """Name the newest files, and count the others."""
    named = [f"{_shorten(file.path)} ({format_bytes(file.bytes)})" for file in files[:_NAMED]]
    rest = count - len(named)
    return ", ".join([*named, *([f"{rest:,} more"] if rest > 0 else [])])


def _shorten(path: str) -> str:
    return path if len(path) <= _NAME_LENGTH else f"...{path[-_NAME_LENGTH:]}"


def _empty_lines(found: LeftBehind, job: Job) -> list[str]:
    checkpoints = {task.checkpoints for task in job.tasks}
    named = [(path, "checkpoints" if path in checkpoints else "outputs") for path in found.empty]
    shown = [f"Nothing was written to {_shorten(path)}, which `{key}` names." for path, key in named[:_NAMED]]
    return shown + ([f"Nor to {len(named) - _NAMED:,} others."] if len(named) > _NAMED else [])
