"""Parses a command that is run without a shell."""

from __future__ import annotations

import shlex

from orchestrator.adapters.jobfile.problems import quoted
from orchestrator.core.errors import BadRequestError
from orchestrator.core.values.printable import require_printable

_OF_A_SHELL = frozenset({"|", "||", "&", "&&", ";", "<", ">", ">>", "2>", "2>&1"})


def parse_argv(text: str) -> tuple[str, ...]:
    """Split a command of one line into its words, with a shell's rules for quotes.

    Raises:
        BadRequestError: it is empty, has several lines or unprintable characters, a quote isn't closed, or it needs a
            shell.
    """
    try:
        words = tuple(shlex.split(require_printable(text.strip())))
    except ValueError as err:
        raise BadRequestError(
            f"{quoted(text)} can't be split into words", why=str(err), fix="close the quote, or leave it out"
        ) from err
    if not words or not words[0]:
        raise BadRequestError("this names no program", fix="write for example python -m trainer check digits --data .")
    if operators := [word for word in words if word in _OF_A_SHELL]:
        raise BadRequestError(
            f"{quoted(operators[0])} is for a shell", why="this is run without one", fix="write a script, and name it"
        )
    return words
