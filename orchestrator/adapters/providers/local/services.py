"""Keeps a machine's services running: restarts each one that dies, with a growing delay."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable

_FIRST_WAIT_S = 0.5
_LONGEST_WAIT_S = 30.0
_HEALTHY_S = 60.0


class Service:
    """One process that must run as long as the machine lives."""

    def __init__(self, start: Callable[[], subprocess.Popen[bytes]], process: subprocess.Popen[bytes]) -> None:
        self._start = start
        self._process = process
        self._started = 0.0
        self._wait = _FIRST_WAIT_S
        self._due: float | None = None

    @property
    def pid(self) -> int:
        """The pid of the running process, or of the last one."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether it runs, as far as its end hasn't been noticed."""
        return self._process.returncode is None

    def ended(self, status: int) -> None:
        """Record that the process was reaped; `status` is waitpid's."""
        self._process.returncode = os.waitstatus_to_exitcode(status)

    def tend(self, now: float) -> bool:
        """Restart the process if it has died and its delay is over; `now` is in monotonic seconds.

        Returns:
            Whether a process was started.
        """
        if self.is_alive:
            return False
        if self._due is None:
            healthy = now - self._started > _HEALTHY_S
            self._wait = _FIRST_WAIT_S if healthy else min(2 * self._wait, _LONGEST_WAIT_S)
            self._due = now + self._wait
        if now < self._due:
            return False
        self._due = None
        try:
            self._process, self._started = self._start(), now
        except OSError:
            return False  # no more processes, or no memory, at this instant
        return True


def reap(services: list[Service]) -> bool:
    """Reap every child that has ended: services, and the orphans that a subreaper inherits.

    Returns:
        Whether there was one.
    """
    some = False
    while (child := _next_ended()) is not None:
        some = True
        pid, status = child
        for service in services:
            if service.pid == pid:
                service.ended(status)
    return some


def _next_ended() -> tuple[int, int] | None:
    try:
        pid, status = os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return None
    return (pid, status) if pid else None
