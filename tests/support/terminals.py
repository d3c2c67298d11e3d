"""Finds characters that must not reach a terminal, and runs a command on a terminal."""

from __future__ import annotations

import os
import re
import subprocess
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path

CONTROLS_OF_KEDGE = re.compile(r"\x1b\[(?:[0-9;]*m|\?25[lh]|2K|1A|K)|\r")
"""Colours, and the control sequences of the progress lines: rich's, and that of `sync-code`."""

JOINERS = "\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0"
"""Invisible, although Unicode classes them as letters or marks."""


def forbidden(text: str, *, kedge_draws: bool = False) -> list[str]:
    """List the characters of a text that could hide, move or disguise something on a terminal."""
    left = CONTROLS_OF_KEDGE.sub("", text) if kedge_draws else text
    return sorted({f"U+{ord(letter):04X}" for letter in left if _is_forbidden(letter)})


def on_terminal(
    argv: Sequence[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    kind: str = "dumb",
    answer: bytes = b"",
    columns: int = 200,
) -> tuple[int, str]:
    """Run a command on its own terminal; return its exit code and everything that it wrote to the terminal."""
    master, ours = os.openpty()
    with subprocess.Popen(
        argv,
        cwd=cwd,
        env={**env, "TERM": kind, "COLUMNS": str(columns), "LINES": "50"},
        preexec_fn=lambda: os.login_tty(ours),  # noqa: PLW1509 - no thread runs here
    ) as process:
        os.close(ours)
        if answer:
            os.write(master, answer)
        sent = b""
        while chunk := _read(master):
            sent += chunk
        os.close(master)
    return process.returncode, sent.decode().replace("\r\n", "\n")


def _is_forbidden(letter: str) -> bool:
    return letter in JOINERS or (
        unicodedata.category(letter) in ("Cc", "Cf", "Cs", "Zl", "Zp") and letter not in "\n\t"
    )


def _read(master: int) -> bytes:
    try:
        return os.read(master, 1 << 16)
    except OSError:  # on Linux this means that the other end is closed
        return b""
