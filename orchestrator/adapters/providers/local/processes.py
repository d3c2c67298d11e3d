"""Finds and ends all processes of a machine, and no others.

A process belongs to a machine if one of these holds, and it doesn't have another machine's marker:
- its environment has the machine's marker, or its command line is that of the machine's sshd;
- init has recorded it (some clear their environment, such as `env -i`, or overwrite it, such as sshd's sessions);
- it descends from such a process. Under a subreaper (Linux), double-forking daemons stay init's descendants;
  elsewhere only the marker finds them.
"""

from __future__ import annotations

import contextlib
import itertools
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
_GONE = b"ZXx"
"""The same, as the kernel writes them."""
_PART_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Ident:
    """Identifies one process: its pid and its start time, because pids are reused."""

    pid: int
    born: float

    @property
    def is_alive(self) -> bool:
        """Whether the process still exists."""
        return born(self.pid) == self.born


@dataclass(frozen=True, slots=True)
class ProcessMarker:
    """The marker in the environment of a machine's processes.

    Attributes:
        root: the machine's folder; distinguishes machines with the same id in other state folders.
    """

    machine: str
    root: str

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables of the marker."""
        return {MACHINE_VARIABLE: self.machine, ROOT_VARIABLE: self.root}

    def is_on(self, pid: int) -> bool:
        """Tell whether a process has this marker."""
        marker = _read_marker(pid)
        return marker is not None and self.covers(marker)

    def covers(self, other: ProcessMarker) -> bool:
        """Tell whether another marker is the same; one without a folder is compared by id only."""
        return other.machine == self.machine and other.root in ("", self.root)


def born(pid: int) -> float | None:
    """Return the start time of a living process, on a clock that nobody can set; None if there is none.

    Zombies don't count as living: if the computer's first process doesn't reap, they stay for ever.
    """
    try:
        if sys.platform == "linux":
            # Field 3 is the state, field 22 the ticks since boot.
            fields = _stat(pid)
            return float(fields[19]) if fields[0] not in _GONE else None
        process = psutil.Process(pid)
        return process.create_time() if process.status() not in _ENDED else None
    except (OSError, psutil.Error):
        return None


def ident(pid: int) -> Ident:
    """Identify a living process.

    Raises:
        ProcessLookupError: there is no such process.
    """
    since = born(pid)
    if since is None:
        raise ProcessLookupError(pid)
    return Ident(pid, since)


def lineage() -> set[int]:
    """Return this process and its ancestors: a teardown must not end the shell that it was typed into."""
    return {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}


def find_processes(
    marker: ProcessMarker, known: Iterable[Ident] = (), spare: Collection[int] = ()
) -> list[psutil.Process]:
    """Find every living process of a machine, except those in `spare`."""
    living = _living()
    markers = {pid: _read_marker(pid) for pid in living}
    ours = {pid for pid, found in markers.items() if found and marker.covers(found)}
    others = {pid for pid, found in markers.items() if found and not marker.covers(found)}
    seeds = ours | {each.pid for each in known if each.pid in living and each.is_alive} - others
    processes = []
    for pid in _descend(seeds, living, others) - set(spare):
        with contextlib.suppress(psutil.NoSuchProcess):
            processes.append(psutil.Process(pid))
    return processes


def find_descendants(marker: ProcessMarker, root: int) -> set[int]:
    """Find the living descendants of one process, except those of another machine below it."""
    living = _living()
    below = _descend({root}, living, set())
    others = {pid for pid in below if (found := _read_marker(pid)) and not marker.covers(found)}
    return _descend({root}, living, others) - {root}


def find_markers() -> dict[int, ProcessMarker]:
    """Return the markers of all living processes that have one, by pid."""
    return {pid: marker for pid in _living() if (marker := _read_marker(pid))}


def end_processes(
    find: Callable[[], list[psutil.Process]],
    pause: Callable[[float], None],
    *,
    grace_s: float = GRACE_S,
    limit_s: float = LIMIT_S,
) -> list[psutil.Process]:
    """End what `find` returns until it returns nothing: SIGTERM once, SIGKILL after the grace period.

    Returns:
        The processes that are left after the limit.
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


# Each command scans all processes of the computer, several times. On Linux /proc is read directly, which takes a third
# of the time that psutil takes.


def _living() -> dict[int, int]:
    """Return the parent of each living process."""
    if sys.platform != "linux":
        processes = psutil.process_iter(["ppid", "status"])
        return {each.pid: each.info["ppid"] for each in processes if each.info["status"] not in _ENDED}
    found = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - names are all that is needed
        if name.isdigit():
            with contextlib.suppress(OSError):
                fields = _stat(int(name))
                if fields[0] not in _GONE:
                    found[int(name)] = int(fields[1])
    return found


def _read_marker(pid: int) -> ProcessMarker | None:
    try:
        environ = _read_environ(pid)
        if MACHINE_VARIABLE in environ:
            return ProcessMarker(environ[MACHINE_VARIABLE], environ.get(ROOT_VARIABLE, ""))
        return _read_sshd_marker(pid) if _read_name(pid) == "sshd" else None
    except (psutil.Error, OSError):
        return None  # gone, a zombie, or somebody else's


def _read_environ(pid: int) -> dict[str, str]:
    """Return a process's variables; on Linux only if the marker may be one of them."""
    if sys.platform != "linux":
        return dict(psutil.Process(pid).environ())
    content = _read_proc(pid, "environ")
    if MACHINE_VARIABLE.encode() not in content:
        return {}
    # What follows an empty string isn't the environment any more.
    lines = itertools.takewhile(bool, os.fsdecode(content).split("\0"))
    return {name: value for name, _, value in (line.partition("=") for line in lines)}


def _read_name(pid: int) -> str:
    if sys.platform != "linux":
        return str(psutil.Process(pid).name())
    return os.fsdecode(_read_proc(pid, "comm")).rstrip("\n")


def _read_sshd_marker(pid: int) -> ProcessMarker | None:
    """Recognize a machine's sshd by its command line: its process title overwrites its environment."""
    match = _SSHD.search(" ".join(psutil.Process(pid).cmdline()))
    return ProcessMarker(Path(match["root"]).name, match["root"]) if match else None


def _stat(pid: int) -> list[bytes]:
    """Return the fields of proc_pid_stat(5) from the third on; the name in parentheses may contain anything."""
    return _read_proc(pid, "stat").rpartition(b")")[2].split()


def _read_proc(pid: int, name: str) -> bytes:
    descriptor = os.open(f"/proc/{pid}/{name}", os.O_RDONLY)
    try:
        content = b""
        while part := os.read(descriptor, _PART_BYTES):
            content += part
        return content
    finally:
        os.close(descriptor)


def _descend(seeds: set[int], living: dict[int, int], barred: set[int]) -> set[int]:
    children: dict[int, list[int]] = {}
    for pid, parent in living.items():
        children.setdefault(parent, []).append(pid)
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
        return  # gone already, or another user's: the caller reports what is left
