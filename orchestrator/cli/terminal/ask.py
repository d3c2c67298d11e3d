"""Asks the user to confirm before money is spent or something is deleted."""

from __future__ import annotations

import sys

from orchestrator.core.errors import BadRequestError


def confirm(question: str, *, yes: bool) -> None:
    """Return if the user agrees.

    Raises:
        BadRequestError: the user declines, or there is neither a terminal to ask on nor --yes.
    """
    if yes:
        return
    if not can_ask():
        raise BadRequestError(
            "this needs your confirmation, and there is no terminal to ask on",
            why="it costs money, or deletes something",
            fix="check it with --dry-run, then add --yes",
        )
    if not is_agreed(question):
        raise BadRequestError("not confirmed: nothing of this plan was done")


def can_ask() -> bool:
    """Tell whether there is a terminal to ask on."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def is_agreed(question: str) -> bool:
    """Ask on the terminal; anything but a yes is a no."""
    try:
        # Not with input()'s own prompt, which bypasses standard output.
        print(f"{question} [y/N] ", end="", flush=True)
        answer = input()
    except EOFError:
        answer = ""
        print()
    except KeyboardInterrupt:
        # The next output begins on its own line.
        print()
        raise
    return answer.strip().lower() in ("y", "yes")
