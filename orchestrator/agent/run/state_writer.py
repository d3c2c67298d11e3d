"""Writes a task's state and its log while its runner works."""

from __future__ import annotations

import os
import secrets
import sys
from typing import Any

from ..base import processes, state
from ..base.errors import AgentError
from ..base.layout import TaskLayout
from ..base.polling import poll_until
from ..base.runlog import RunLog
from ..base.state import State
from ..waiting.pump import Echo

_SAVE_SECONDS = 30.0


class StateWriter:
    """Holds the state of a task whose runner is this process.

    Attributes:
        state: the present one, whether it is written already or not.
        log: the task's log.
        echo: an attached terminal.
        is_written: whether the state is on the disk.
    """

    def __init__(self, task: TaskLayout, before: State) -> None:
        self._task = task
        self.is_written = True
        self.log = RunLog(lambda: task.log_file)
        self.echo = Echo()
        pid = os.getpid()
        identity = processes.identify(pid)
        # A runner that was slim meanwhile goes on with the same command, which has the mark.
        is_same = (before.runner, before.runner_identity) == (pid, identity)
        mark = before.mark if is_same else secrets.token_hex(16)
        self.state = before.replace(runner=pid, runner_identity=identity, mark=mark)

    def remark(self, text: str) -> None:
        """Add a line of the agent's own to the log."""
        self.log.remark(text)
        self.echo.write(f"[kedge] {text}\r\n".encode(errors="surrogateescape"))

    def change(self, **changes: Any) -> None:
        """Change fields of the state, which are written with its next turn."""
        self.state = self.state.replace(**changes)

    def change_command(self, **changes: Any) -> None:
        """Change fields of the command's state, likewise."""
        self.change(command=self.state.command.replace(**changes))

    def turn(self, turned_to: str, reason: str = "") -> None:
        """Turn the command to another state, and write it."""
        self.state = self.state.turned(turned_to, reason=reason)
        self.write()

    def write(self) -> None:
        """Write the state; on a full disk that is repeated later, because the command must go on."""
        self.is_written = False
        self._write()

    def finish(self) -> None:
        """Write the last state, if it isn't written yet.

        Raises:
            AgentError: it can't be written.
        """
        if not poll_until(self._write, seconds=_SAVE_SECONDS, every=0.5):
            raise AgentError("the command's last state could not be written", why="is the disk full?")

    def _write(self) -> bool:
        if not self.is_written:
            try:
                with state.changing(self._task):
                    state.save(self._task, self.state)
            except (OSError, AgentError) as err:
                sys.stderr.write(f"the state could not be written: {err}\n")
                return False
            self.is_written = True
        return True
