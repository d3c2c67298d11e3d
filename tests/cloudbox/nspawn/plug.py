"""Runs commands that are killed when a pipe ends, and that die with the process that started them."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.cloudbox.nspawn.cgroups import join_groups

_PR_SET_PDEATHSIG = 1


class Plug:
    """Runs commands one after the other while a pipe is open, and reads lines from the pipe meanwhile."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._rest = b""
        self._lines: deque[str] = deque()
        self.pulled = False

    def next_line(self) -> str | None:
        """Wait for the next line; None if the pipe ends first."""
        while not self._lines and not self.pulled:
            self._read()
        return self._lines.popleft() if self._lines else None

    def run(
        self,
        argv: Sequence[str],
        *,
        groups: Sequence[Path] = (),
        on_start: Callable[[int], None] = lambda _pid: None,
        on_line: Callable[[int, str], None] = lambda _pid, _line: None,
    ) -> int:
        """Run a command in the control groups until it ends, or kill it at the end of the pipe.

        Returns:
            Its exit status, negative if it was killed.
        """
        if self.pulled:
            return -signal.SIGKILL
        process = _start(argv, groups)
        try:
            on_start(process.pid)
            self._wait(process, on_line)
        finally:
            process.kill()
            status = process.wait()
        return status

    def _wait(self, process: subprocess.Popen[bytes], on_line: Callable[[int, str], None]) -> None:
        ended = os.pidfd_open(process.pid)
        try:
            while not self.pulled:
                while self._lines:
                    on_line(process.pid, self._lines.popleft())
                readable, _, _ = select.select([ended, self._fd], [], [])
                if ended in readable:
                    process.wait()
                    return
                self._read()
        finally:
            os.close(ended)

    def _read(self) -> None:
        chunk = os.read(self._fd, 1 << 16)
        self.pulled = not chunk
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        self._lines.extend(line.decode() for line in lines)


def _start(argv: Sequence[str], groups: Sequence[Path]) -> subprocess.Popen[bytes]:
    parent = os.getpid()

    def prepare() -> None:
        join_groups(groups)
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        # If the parent died before that call, no signal will come.
        if os.getppid() != parent:
            os._exit(1)

    # Standard output belongs to the keeper's answers.
    return subprocess.Popen(
        argv,
        preexec_fn=prepare,  # noqa: PLW1509 - a keeper has one thread
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
    )
