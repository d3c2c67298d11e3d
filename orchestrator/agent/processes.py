"""Processes: who is who although numbers are used again, whose children are whose, and how they end."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

_PROC = Path("/proc")
_PR_SET_CHILD_SUBREAPER = 36
_KILL_ROUND_SECONDS = 0.05

MARK = "KEDGE_AGENT_MARK"
"""The environment variable by which a command's processes are found when their runner is dead."""


def can_list() -> bool:
    """Say whether processes can be listed here (Linux's /proc)."""
    return (_PROC / "self/stat").exists()


def identify(pid: int) -> str:
    """Return what no other process will ever have: boot and start time; empty when there is no such process."""
    if not can_list():
        return _identify_by_ps(pid)
    fields = _stat(pid)
    if not fields or fields[0] in ("Z", "X"):
        return ""
    return f"{_boot_id()}:{fields[19]}"


def is_same(pid: int, identity: str) -> bool:
    """Say whether the process is still the one that had this identity."""
    return pid > 0 and bool(identity) and identify(pid) == identity


def adopt_orphans() -> None:
    """Become the parent of every orphan among one's descendants, where the system can do that (Linux)."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants(pid: int) -> list[int]:
    """List children, their children and so on; empty where there is no /proc."""
    children: dict[int, list[int]] = {}
    for other in _all_pids():
        fields = _stat(other)
        if fields:
            children.setdefault(int(fields[1]), []).append(other)
    found = []
    queue = [pid]
    while queue:
        below = children.get(queue.pop(), [])
        found += below
        queue += below
    return found


def marked(mark: str) -> list[int]:
    """List the processes that carry this mark in their environment; empty where there is no /proc."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for pid in _all_pids():
        with contextlib.suppress(OSError):
            if wanted in (_PROC / str(pid) / "environ").read_bytes().split(b"\0"):
                found.append(pid)
    return found


def members(group: int) -> list[int]:
    """List the processes of a process group; empty where there is no /proc."""
    return [pid for pid in _all_pids() if (fields := _stat(pid)) and int(fields[2]) == group]


def group_exists(group: int) -> bool:
    """Say whether any process is left in a process group."""
    return _signal_group(group, 0)


def signal_group(group: int, number: int) -> None:
    """Signal a process group; one that is gone is no error."""
    _signal_group(group, number)


def signal_all(pids: Iterable[int], number: int) -> None:
    """Signal processes; those that are gone, or somebody else's, are no error."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def kill_until_gone(find: Callable[[], list[int]], *, timeout: float) -> bool:
    """SIGKILL what `find` returns again and again until it finds nothing; False when time ran out.

    One round isn't enough: a process may fork between being listed and being killed.
    """
    give_up = time.monotonic() + timeout
    while pids := find():
        if time.monotonic() >= give_up:
            return False
        signal_all(pids, signal.SIGKILL)
        time.sleep(_KILL_ROUND_SECONDS)
    return True


def wait_until(condition: Callable[[], bool], *, timeout: float, every: float = 0.05) -> bool:
    """Wait until a condition holds; False when time ran out."""
    give_up = time.monotonic() + timeout
    while not condition():
        if time.monotonic() >= give_up:
            return False
        time.sleep(every)
    return True


def _all_pids() -> list[int]:
    try:
        return [int(name) for name in os.listdir(_PROC) if name.isdigit()]  # noqa: PTH208 - names, not paths
    except OSError:
        return []


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the third (state) on; the second may hold any character."""
    try:
        raw = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return []
    return raw.rpartition(")")[2].split()


def _boot_id() -> str:
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _identify_by_ps(pid: int) -> str:
    shown = subprocess.run(
        ["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False, timeout=10
    )
    return shown.stdout.strip()


def _signal_group(group: int, number: int) -> bool:
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
