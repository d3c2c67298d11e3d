"""File locks between the processes of this computer; the operating system releases those of a process that dies."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from orchestrator.adapters.host.files import open_to_write, opened_folder
from orchestrator.adapters.host.ids import check_id
from orchestrator.adapters.host.retry import poll_until
from orchestrator.core.errors import ConflictError
from orchestrator.core.ports import Clock

_PAUSE = timedelta(milliseconds=50)


@contextmanager
def hold(path: Path, clock: Clock, taken: ConflictError, *, within: timedelta = timedelta(0)) -> Iterator[None]:
    """Hold a file's lock.

    Args:
        path: the file; it is created if it is missing, and stays.
        clock: tells the time and sleeps.
        taken: the error to raise if another process holds the lock.
        within: how long to wait for the other process.

    Raises:
        ConflictError: `taken`.
    """
    with open_to_write(path) as file:
        _take(file.fileno(), clock, taken, within)
        yield


@contextmanager
def hold_folder(folder: Path, clock: Clock, taken: ConflictError, *, within: timedelta) -> Iterator[None]:
    """Lock a folder itself, without writing into it. The arguments are those of `hold`.

    Raises:
        ConflictError: `taken`.
    """
    with opened_folder(folder) as descriptor:
        _take(descriptor, clock, taken, within)
        yield


@contextmanager
def claim(folder: Path, machine_id: str, clock: Clock, *, within: timedelta = timedelta(0)) -> Iterator[None]:
    """Lock the creation of a machine: two at once would overwrite each other's record of its host key.

    Raises:
        ConflictError: another process is creating the machine.
    """
    taken = ConflictError(
        f"machine {machine_id} is being created",
        why="another command on this computer is creating it",
        fix="wait for that command, or see `kedge status`",
    )
    with hold(folder / f"{check_id(machine_id)}.lock", clock, taken, within=within):
        yield


def _take(descriptor: int, clock: Clock, taken: ConflictError, within: timedelta) -> None:
    if not poll_until(lambda: _try_lock(descriptor), within, clock, first=_PAUSE, longest=_PAUSE):
        raise taken


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
