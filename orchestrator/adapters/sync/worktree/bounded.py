"""Runs a program with limits on time and output, because its input may make it run forever."""

from __future__ import annotations

import os
import selectors
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, NamedTuple

_CHUNK = 1 << 16
_COMPLAINT_BYTES = 1 << 16


class OverLimitError(Exception):
    """The program wrote more than the limit."""


class Ended(NamedTuple):
    """How a program ended, with its output and the beginning of its standard error."""

    exit_code: int
    stdout: bytes
    stderr: bytes


def run_bounded(
    argv: Sequence[str],
    *,
    cwd: Path,
    seconds: float,
    limit: int,
    seconds_until_look: float = 0,
    look: Callable[[], None] | None = None,
) -> Ended:
    """Run a program to its end, and kill it at a limit.

    Args:
        argv: the program.
        cwd: its working folder.
        seconds: the time limit.
        limit: the most bytes that it may write.
        seconds_until_look: after this time, `look` is called once.
        look: looks for the reason of the delay, and raises an error if it finds one.

    Raises:
        TimeoutError: it took longer.
        OverLimitError: it wrote more.
    """
    give_up_at = time.monotonic() + seconds
    with tempfile.TemporaryFile() as complaints:
        process = subprocess.Popen(
            argv, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=complaints, bufsize=0
        )
        with process:
            try:
                written = b"".join(_read(process.stdout, give_up_at, limit, seconds_until_look, look))
                process.wait(max(give_up_at - time.monotonic(), 0))
            except (TimeoutError, subprocess.TimeoutExpired) as err:
                process.kill()
                raise TimeoutError(f"it took more than {seconds:g} seconds") from err
            except BaseException:
                process.kill()
                raise
        complaints.seek(0)
        return Ended(process.returncode, written, complaints.read(_COMPLAINT_BYTES))


def _read(
    pipe: IO[bytes] | None, give_up_at: float, limit: int, patience: float, look: Callable[[], None] | None
) -> Iterator[bytes]:
    assert pipe is not None  # noqa: S101 - it was asked for
    look_at = time.monotonic() + patience
    size = 0
    with selectors.DefaultSelector() as waiting:
        waiting.register(pipe, selectors.EVENT_READ)
        while (now := time.monotonic()) < give_up_at:
            if look is not None and now >= look_at:
                look()
                look = None
            if not waiting.select(min(give_up_at, look_at if look else give_up_at) - now):
                continue
            part = os.read(pipe.fileno(), _CHUNK)
            if not part:
                return
            yield part
            size += len(part)
            if size > limit:
                raise OverLimitError(f"it has written more than {limit} bytes")
    raise TimeoutError
