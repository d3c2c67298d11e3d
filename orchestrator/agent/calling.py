"""Call a program that does its work and ends."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from .errors import AgentError

_TIMEOUT_SECONDS = 30.0


def rights_over(folder: Path) -> list[str]:
    """Return what to put before a command that changes something in a folder: sudo, where it needs it."""
    return [] if os.geteuid() == 0 or os.access(folder, os.W_OK) else ["sudo", "-n"]


def call(argv: Sequence[str]) -> None:
    """Call a program, and wait for it.

    Raises:
        AgentError: it isn't there, failed, or took too long.
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
