"""Prints remarks about what is being waited for, apart from a command's output for scripts."""

from __future__ import annotations

import sys


def say(text: str) -> None:
    """Print a line for the user, on standard error."""
    print(text, file=sys.stderr, flush=True)
