"""Parses the values of a task: its name, its GPUs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from orchestrator.adapters.jobfile.problems import quoted
from orchestrator.core.errors import BadRequestError

TASK_PATTERN = r"^[a-z][a-z0-9-]{0,30}$"
MOST_GPUS = 128
"""More than any machine has; bounds what a range may expand to."""

_RESERVED = ("output", "checkpoints", "left-behind", "tasks", "machine", "nodes")
"""Names in a folder of results that aren't tasks'."""
_RANGE = re.compile(r"([0-9]{1,4})(?:\s*-\s*([0-9]{1,4}))?", re.ASCII)


def parse_task_name(name: str) -> str:
    """Return a task's name unchanged, if it is valid.

    Raises:
        BadRequestError: it can't be the name of a folder among the results, or of a unit.
    """
    if name in _RESERVED:
        raise BadRequestError(
            f"{quoted(name)} can't be a task's name",
            why="results have a folder of that name",
            fix="choose another name",
        )
    if not re.fullmatch(TASK_PATTERN, name) or name.endswith("\n"):
        raise BadRequestError(
            f"{quoted(name)} can't be a task's name",
            why="it names folders and units: a-z, 0-9 and -, a letter first, at most 31 characters",
            fix="write for example: pcdiff, stage-2",
        )
    return name


def parse_gpu_indexes(value: object) -> tuple[int, ...]:
    """Return indexes of GPUs in ascending order, from `7`, `0-6`, `0,2,4` or a list of these.

    Raises:
        BadRequestError: it is none of these, or names a GPU twice.
    """
    parts = value if isinstance(value, list) else [value]
    words = [word for part in parts for word in (part.split(",") if isinstance(part, str) else [part])]
    indexes = [index for word in words for index in _parse_range(word)]
    twice = next((index for index in indexes if indexes.count(index) > 1), None)
    if twice is not None:
        raise BadRequestError(f"GPU {twice} is named twice", fix="name each GPU once")
    if not indexes:
        raise BadRequestError("this names no GPU", fix="name some, or leave `gpus` out to share all")
    return tuple(sorted(indexes))


def _parse_range(word: object) -> Iterator[int]:
    match = _RANGE.fullmatch(word.strip()) if isinstance(word, str) else None
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
    if not first <= last < MOST_GPUS:
        raise BadRequestError(
            f"{quoted(word)} doesn't name GPUs",
            why=f"they are numbered from 0, to {MOST_GPUS - 1} at most",
            fix="write for example 0-6, 7, or 0,2,4",
        )
    yield from range(first, last + 1)
