"""Find every process of a machine, and end them: those, and no others.

A process is a machine's when one of these holds, and it doesn't carry another machine's mark:
- it carries the machine's mark in its environment, or is the machine's sshd by its command line;
- init wrote it down (some clear their environment, as `env -i` does, or write over it, as sshd's sessions do);
- it descends from such a process. Under a subreaper (Linux), daemons that fork twice stay init's descendants;
  elsewhere only the mark finds them.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

import psutil

MACHINE_VARIABLE = "KEDGE_MACHINE"
ROOT_VARIABLE = "KEDGE_MACHINE_ROOT"

GRACE_S = 3.0
LIMIT_S = 15.0
PAUSE_S = 0.02

# As sshd.py starts it.
_SSHD = re.compile(r" -D -f (?P<root>/.+)/sshd_config -p \d+ -E (?P=root)/sshd\.log( |$)")

_ENDED = (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)


@dataclass(frozen=True, slots=True)
class Ident:
    """One process for good: its pid, and when it was born, because pids are used again."""

    pid: int
    born: float

    @property
    def is_alive(self) -> bool:
        """The process is still there."""
        return born(self.pid) == self.born


@dataclass(frozen=True, slots=True)
class Mark:
    """What a machine's processes carry in their environment.

    Attributes:
        root: the machine's folder, which tells machines of the same id in other state folders apart.
    """

    machine: str
    root: str

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables that are the mark."""
        return {MACHINE_VARIABLE: self.machine, ROOT_VARIABLE: self.root}

    def is_on(self, pid: int) -> bool:
        """Tell whether a process carries this mark."""
        mark = _read_mark(pid)
        return mark is not None and self.covers(mark)

    def covers(self, other: Mark) -> bool:
        """Tell whether a mark that was read is this one; one without a folder counts by its id."""
        return other.machine == self.machine and other.root in ("", self.root)


def born(pid: int) -> float | None:
    """Return when a living process was born, on a clock that nobody can set; None when there is none.

    A zombie doesn't live: where the computer's first process collects none, it stays for ever.
    """
    try:
        if sys.platform == "linux":
            # Field 3 is the state, 22 ticks since boot; the name before them, in parentheses, may hold anything.
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            return float(fields[19]) if fields[0] not in "ZX" else None
        process = psutil.Process(pid)
        return process.create_time() if process.status() not in _ENDED else None
    except (OSError, psutil.Error):
        return None


def ident(pid: int) -> Ident:
    """Name a living process.

    Raises:
        ProcessLookupError: there is none.
    """
    since = born(pid)
    if since is None:
        raise ProcessLookupError(pid)
    return Ident(pid, since)


def lineage() -> set[int]:
    """Return this process and its ancestors: a teardown must not end the shell that it was typed into."""
    return {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}


def find_processes(mark: Mark, known: Iterable[Ident] = (), spare: Collection[int] = ()) -> list[psutil.Process]:
    """Find every living process of a machine, but for those to be spared."""
    living = _living()
    marks = {pid: _read_mark(pid) for pid in living}
    ours = {pid for pid, found in marks.items() if found and mark.covers(found)}
    others = {pid for pid, found in marks.items() if found and not mark.covers(found)}
    seeds = ours | {each.pid for each in known if each.pid in living and each.is_alive} - others
    return [living[pid] for pid in _descend(seeds, living, others) if pid not in spare]


def find_descendants(mark: Mark, root: int) -> set[int]:
    """Find the living descendants of one process, without those of another machine below it."""
    living = _living()
    below = _descend({root}, living, set())
    others = {pid for pid in below if (found := _read_mark(pid)) and not mark.covers(found)}
    return _descend({root}, living, others) - {root}


def find_marks() -> dict[int, Mark]:
    """Return the mark of every living process that carries one."""
    return {pid: mark for pid in _living() if (mark := _read_mark(pid))}


def end_processes(
    find: Callable[[], list[psutil.Process]],
    pause: Callable[[float], None],
    *,
    grace_s: float = GRACE_S,
    limit_s: float = LIMIT_S,
) -> list[psutil.Process]:
    """End what `find` finds until it finds nothing: SIGTERM once, SIGKILL after the grace.

    Returns:
        What is left after the limit.
    """
    start = time.monotonic()
    asked: set[psutil.Process] = set()
    while found := find():
        elapsed = time.monotonic() - start
        if elapsed > limit_s:
            break
        for process in found:
            if elapsed > grace_s:
                _signal(process.kill)
            elif process not in asked:
                _signal(process.terminate)
        asked.update(found)
        pause(PAUSE_S)
    return found


def _living() -> dict[int, psutil.Process]:
    processes = psutil.process_iter(["ppid", "status"])
    return {process.pid: process for process in processes if process.info["status"] not in _ENDED}


def _read_mark(pid: int) -> Mark | None:
    try:
        process = psutil.Process(pid)
        environ = process.environ()
        if MACHINE_VARIABLE in environ:
            return Mark(environ[MACHINE_VARIABLE], environ.get(ROOT_VARIABLE, ""))
        return _read_sshd_mark(process) if process.name() == "sshd" else None
    except (psutil.Error, OSError):
        return None  # gone, a zombie, or somebody else's


def _read_sshd_mark(process: psutil.Process) -> Mark | None:
    """Know a machine's sshd by its command line: it writes its title over its environment."""
    match = _SSHD.search(" ".join(process.cmdline()))
    return Mark(Path(match["root"]).name, match["root"]) if match else None


def _descend(seeds: set[int], living: dict[int, psutil.Process], barred: set[int]) -> set[int]:
    children: dict[int, list[int]] = {}
    for pid, process in living.items():
        children.setdefault(process.info["ppid"], []).append(pid)
    found: set[int] = set()
    ahead = list(seeds)
    while ahead:
        pid = ahead.pop()
        if pid not in found and pid not in barred:
            found.add(pid)
            ahead += children.get(pid, ())
    return found


def _signal(send: Callable[[], None]) -> None:
    try:
        send()
    except psutil.Error:
        return  # gone already, or not ours to end: what is left is reported
