"""Collects a job file's mistakes into one error."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from orchestrator.core.errors import BadRequestError

KeyPath = tuple[str | int, ...]

_SHOWN = 10
_LONGEST = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One mistake.

    Attributes:
        line: the line in the file, counted from 1.
    """

    line: int
    what: str
    why: str = ""
    fix: str = ""


def refusal(path: Path, problems: Sequence[Problem]) -> BadRequestError:
    """Combine a file's mistakes into one error, in the order of its lines."""
    ordered = sorted(problems, key=lambda problem: problem.line)
    if len(ordered) == 1:
        only = ordered[0]
        return BadRequestError(f"{path}:{only.line}: {only.what}", why=only.why, fix=only.fix)
    lines = [f"line {problem.line}: {_in_one_line(problem)}" for problem in ordered[:_SHOWN]]
    if len(ordered) > _SHOWN:
        lines.append(f"and {len(ordered) - _SHOWN} more")
    return BadRequestError(
        f"{path}:{ordered[0].line}: {len(ordered)} mistakes",
        why="\n".join(lines),
        fix="correct these lines; docs/job-file.md lists every key, and `kedge job-schema` is for editors",
    )


def nearest(word: str, choices: Iterable[str]) -> str | None:
    """Return the choice that is most similar to a word, or None."""
    by_lower = {choice.lower(): choice for choice in choices}
    matches = get_close_matches(word.lower(), by_lower, n=1)
    return by_lower[matches[0]] if matches else None


def suggest(word: str, choices: Sequence[str]) -> str:
    """Return the text of a fix: the nearest choice if there is one, else all choices."""
    close = nearest(word, choices)
    if close is not None:
        return f"did you mean {close}?"
    return f"choose one of {', '.join(choices)}" if choices else ""


def quoted(value: object) -> str:
    """Quote the user's value in one short line."""
    shown = repr(value)
    return shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST - 3]}..."


def dotted(key_path: KeyPath) -> str:
    """Format a key path: `resources.accelerators`, `data[0].source`."""
    text = ""
    for part in key_path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += ("." if text else "") + (part if part.isprintable() else repr(part))
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def _in_one_line(problem: Problem) -> str:
    return f"{problem.what} ({problem.fix})" if problem.fix else problem.what
