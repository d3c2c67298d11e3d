"""The daemon of one local machine: `python -m ...local.init ROOT`.

It arms the deadline, boots the machine, keeps its services alive, records which processes are the machine's, and
ends all of them at the deadline, at SIGTERM, or when the folder vanishes. As a child subreaper (Linux) it inherits
double-forking daemons.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import select
import signal
import sys
import time
from pathlib import Path
from types import FrameType

from orchestrator.adapters.providers.local.boot import boot
from orchestrator.adapters.providers.local.ending import end_local_machine
from orchestrator.adapters.providers.local.folder import Facts, MachineFolder
from orchestrator.adapters.providers.local.processes import (
    born,
    end_processes,
    find_descendants,
    find_processes,
    ident,
)
from orchestrator.adapters.providers.local.services import Service, reap
from orchestrator.core.errors import KedgeError

_LOG = logging.getLogger(__name__)

_POLL_S = 5.0
_RESTART_POLL_S = 0.1
_LEAVE_S = 10.0
_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
_ENDS = (signal.SIGALRM, signal.SIGTERM, signal.SIGINT)


class _End(BaseException):
    """The deadline has passed, or somebody asked for the end."""


class Init:
    """One machine's life, from the armed deadline to the removed folder."""

    def __init__(self, folder: MachineFolder, facts: Facts) -> None:
        self._folder = folder
        self._facts = facts
        self._services: list[Service] = []
        self._spare = {os.getpid()}
        self._written: list[tuple[int, float]] = []
        self._wake, wake = os.pipe()
        for end in (self._wake, wake):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)

    def live(self) -> None:
        """Arm the deadline, boot, tend the services, and end."""
        try:
            _arm(self._facts)
            self._boot_and_tend()
        except _End:
            end_local_machine(self._folder, Path(self._facts.sockets), self._pause, self._spare)
        finally:
            _ignore_ends()
            self._end_processes()

    def _boot_and_tend(self) -> None:
        try:
            _become_subreaper()
            self._folder.write_init(os.getpid())
            self._services = boot(self._folder, self._facts)
            self._tend()
            self._leave()
        except KedgeError as error:
            # The folder stays: the process that created the machine reads the reason in it, and removes it.
            self._end_processes()
            self._folder.write("failed", {"what": error.what, "why": error.why, "fix": error.fix})
        except FileNotFoundError:
            _LOG.info("the folder was removed while the machine booted")

    def _tend(self) -> None:
        """Keep the services until the folder vanishes.

        The wall clock is checked besides the timer: the timer stops while the computer is suspended, and the clock
        may be set back. Whichever comes first counts.
        """
        look = 0.0
        while self._folder.root.is_dir():
            self._read_again()
            if time.time() >= self._facts.deadline_at:
                raise _End
            now = time.monotonic()
            started = [service.tend(now) for service in self._services]
            if any(started) or now >= look:
                self._write_down()
                look = now + _POLL_S
            self._pause(_POLL_S if self._all_well() else _RESTART_POLL_S)

    def _read_again(self) -> None:
        """Arm another deadline if the provider has moved it; it sends SIGHUP, which ends a pause."""
        facts = self._folder.facts()
        if facts is not None and facts.deadline_at != self._facts.deadline_at:
            self._facts = facts
            _set_timer(facts)
        if self._folder.armed() != self._facts.deadline_at:
            with contextlib.suppress(OSError):
                self._folder.write_armed(self._facts)

    def _all_well(self) -> bool:
        return all(service.is_alive for service in self._services)

    def _write_down(self) -> None:
        """Record which processes are the machine's, in case init itself is killed."""
        found = [_pair(pid) for pid in sorted(find_descendants(self._folder.marker, os.getpid()))]
        if found == self._written:
            return
        with contextlib.suppress(OSError):  # the disk is full, or the folder is gone: the next round tries again
            self._folder.write("processes", {"idents": found})
            self._written = found

    def _pause(self, seconds: float) -> None:
        """Wait until a child ends, or for this long, and reap the children that have ended."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake, 4096)
        if not reap(self._services):
            select.select([self._wake], [], [], seconds)
            reap(self._services)

    def _end_processes(self) -> None:
        marker, me = self._folder.marker, [ident(os.getpid())]
        end_processes(lambda: find_processes(marker, me, self._spare), self._pause)

    def _leave(self) -> None:
        """End after the folder is removed: a teardown from inside spares its shell, which may still print."""
        limit = time.monotonic() + _LEAVE_S
        me = [ident(os.getpid())]
        stay = self._spare | {service.pid for service in self._services}
        while time.monotonic() < limit and find_processes(self._folder.marker, me, stay):
            self._pause(0.1)


def _pair(pid: int) -> tuple[int, float]:
    return pid, born(pid) or 0.0


def _arm(facts: Facts) -> None:
    for number in _ENDS:
        signal.signal(number, _raise_end)
    signal.signal(signal.SIGCHLD, _wake_up)
    signal.signal(signal.SIGHUP, _wake_up)  # a handler, for children would inherit SIG_IGN
    _set_timer(facts)


def _set_timer(facts: Facts) -> None:
    left = min(facts.deadline_at - time.time(), facts.lifetime)
    signal.setitimer(signal.ITIMER_REAL, max(left, 0.001))


def _raise_end(_number: int, _frame: FrameType | None) -> None:
    _ignore_ends()
    raise _End


def _wake_up(_number: int, _frame: FrameType | None) -> None:
    """Do nothing; the wake-up pipe has been written to."""


def _ignore_ends() -> None:
    for number in _ENDS:
        signal.signal(number, _wake_up)


def _become_subreaper() -> None:
    """Inherit orphaned descendants. Linux only; elsewhere only the marker finds daemons."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def main() -> int:
    """Become a daemon, and run one machine until its end."""
    folder = MachineFolder(Path(sys.argv[1]))
    facts = folder.facts()
    if facts is None:
        return 1  # destroyed before it started
    child = os.fork()
    if child:
        folder.write_init(child)  # so that the process that waits for this one can tell that the child is alive
        return 0
    Init(folder, facts).live()
    return 0


if __name__ == "__main__":
    sys.exit(main())
