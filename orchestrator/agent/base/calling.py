"""Runs a program to its end."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from .errors import AgentError

_TIMEOUT_SECONDS = 30.0


def rights_over(folder: Path) -> list[str]:
    """Return the prefix for a command that writes to a folder: sudo if it is necessary, else nothing."""
    return [] if os.geteuid() == 0 or os.access(folder, os.W_OK) else ["sudo", "-n"]


def call(argv: Sequence[str]) -> None:
    """Run a program, and wait for it.

    Raises:
        AgentError: it isn't installed, failed, or took too long.
    """
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=_TIMEOUT_SECONDS
        )
    except (OSError, subprocess.TimeoutExpired) as err:
        raise AgentError(f"{argv[0]} could not be run", why=str(err)) from err
    if done.returncode != 0:
        complaint = (done.stderr or done.stdout).decode(errors="replace").strip()
        raise AgentError(f"{' '.join(argv[:5])} ... failed", why=complaint or f"exit code {done.returncode}")
