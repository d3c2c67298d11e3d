"""Says what is being waited for, beside what a command prints for scripts."""

from __future__ import annotations

import sys


def say(text: str) -> None:
    """Print a line for a person."""
    print(text, file=sys.stderr, flush=True)
