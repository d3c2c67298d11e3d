"""One command at a time makes a machine: two that race would each overwrite the other's record of its host key."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from orchestrator.adapters.files import open_to_write
from orchestrator.adapters.ids import check_id
from orchestrator.core.errors import ConflictError


@contextmanager
def claim(folder: Path, machine_id: str) -> Iterator[None]:
    """Hold a machine's creation on this computer; a process that dies lets go.

    Raises:
        ConflictError: another process has it.
    """
    with open_to_write(folder / f"{check_id(machine_id)}.lock") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as err:
            raise ConflictError(
                f"machine {machine_id} is just being created",
                why="another command on this computer is at it",
                fix="wait for that command, or see `kedge status`",
            ) from err
        yield
