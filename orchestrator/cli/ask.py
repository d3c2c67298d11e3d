"""Asks before money is spent or something is deleted."""

from __future__ import annotations

import sys

from orchestrator.core.errors import BadRequestError


def confirm(question: str, *, yes: bool) -> None:
    """Return when the user agrees.

    Raises:
        BadRequestError: the user doesn't, or there is no terminal to ask on and no --yes.
    """
    if yes:
        return
    if not can_ask():
        raise BadRequestError(
            "this needs your yes, and there is no terminal to ask on",
            why="money or deletion is at stake",
            fix="look at it with --dry-run, then say --yes",
        )
    if not is_agreed(question):
        raise BadRequestError("not confirmed: nothing of this plan was done")


def can_ask() -> bool:
    """Tell whether somebody can read a question and answer it."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def is_agreed(question: str) -> bool:
    """Ask on the terminal; whatever isn't a yes is a no."""
    try:
        # Not as input()'s own prompt, which reaches the terminal past standard output.
        print(f"{question} [y/N] ", end="", flush=True)
        answer = input()
    except EOFError:
        answer = ""
        print()
    except KeyboardInterrupt:
        # What is said next begins on a line of its own.
        print()
        raise
    return answer.strip().lower() in ("y", "yes")
