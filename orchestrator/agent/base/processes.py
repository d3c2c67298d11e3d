"""Identifies, lists and kills processes: safe against reused process ids, and including orphaned descendants."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

from .polling import poll_until

_PROC = Path("/proc")
_PR_SET_CHILD_SUBREAPER = 36
_KILL_ROUND_SECONDS = 0.05

PROCESS_MARKER = "KEDGE_AGENT_MARK"
"""The environment variable that marks a command's processes, so that they can be found after their runner's death."""


def can_list() -> bool:
    """Whether processes can be listed here (Linux's /proc)."""
    return (_PROC / "self/stat").exists()


def identify(pid: int) -> str:
    """Return a unique identity of a process, its boot id and start time; empty if there is no such process."""
    if not can_list():
        return _identify_by_ps(pid)
    fields = _stat(pid)
    if not fields or fields[0] in ("Z", "X"):
        return ""
    return f"{boot_id()}:{fields[19]}"


def is_same(pid: int, identity: str) -> bool:
    """Whether the process with this id is still the one with this identity."""
    return pid > 0 and bool(identity) and identify(pid) == identity


def adopt_orphans() -> None:
    """Become the parent of orphaned descendants, where the system supports it (Linux's subreaper)."""
    if sys.platform == "linux":
        import ctypes  # noqa: PLC0415 - most verbs do without

        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants(pid: int) -> list[int]:
    """List a process's children, their children and so on; empty without /proc."""
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


def find_marked(marker: str) -> list[int]:
    """List the processes with this marker in their environment; empty without /proc."""
    wanted = f"{PROCESS_MARKER}={marker}".encode()
    found = []
    for pid in _all_pids():
        with contextlib.suppress(OSError):
            if wanted in (_PROC / str(pid) / "environ").read_bytes().split(b"\0"):
                found.append(pid)
    return found


def members(group: int) -> list[int]:
    """List the processes of a process group; empty without /proc."""
    return [pid for pid in _all_pids() if (fields := _stat(pid)) and int(fields[2]) == group]


def group_exists(group: int) -> bool:
    """Whether a process group has any process."""
    return _signal_group(group, 0)


def signal_group(group: int, number: int) -> None:
    """Signal a process group; a missing one is no error."""
    _signal_group(group, number)


def signal_all(pids: Iterable[int], number: int) -> None:
    """Signal processes; one that is missing or belongs to another user is no error."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def kill_until_gone(find: Callable[[], list[int]], *, timeout: float) -> bool:
    """SIGKILL the processes that `find` returns until it returns none; False if time runs out.

    It takes several rounds, because a process may fork between being listed and being killed.
    """

    def strike() -> bool:
        pids = find()
        signal_all(pids, signal.SIGKILL)
        return not pids

    return bool(poll_until(strike, seconds=timeout, every=_KILL_ROUND_SECONDS))


@cache
def boot_id() -> str:
    """Return what identifies this boot of this computer; empty where the system doesn't tell."""
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _all_pids() -> list[int]:
    try:
        return [int(name) for name in os.listdir(_PROC) if name.isdigit()]  # noqa: PTH208 - names, not paths
    except OSError:
        return []


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the third (state) on; the second may have any character."""
    try:
        raw = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return []
    return raw.rpartition(")")[2].split()


def _identify_by_ps(pid: int) -> str:
    import subprocess  # noqa: PLC0415 - most verbs do without

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
