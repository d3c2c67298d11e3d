"""Where a machine keeps what belongs to one task; the only place that knows these paths.

The agent writes there: orchestrator/agent/base/layout.py, with a task's key from orchestrator/agent/base/config.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from posixpath import join


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFolder:
    """A task's folders.

    Attributes:
        key: of the task and its mode: empty for the only task of a run's first mode, else such as `voxel`, `2-fast`
            (the second mode of the run) or `2-fast/voxel`.
    """

    key: str = ""

    @property
    def log(self) -> str:
        """Its log, relative to the results."""
        return join(self.key, "run.log")

    @property
    def output(self) -> str:
        """Its outputs, relative to the results."""
        return join(self.key, "output")

    @property
    def checkpoints(self) -> str:
        """Its checkpoints, relative to the results."""
        return join(self.key, "checkpoints")

    @property
    def kept(self) -> str:
        """The copy of an earlier attempt's last checkpoint, relative to the results."""
        return join(self.key, "checkpoints.kept")

    @property
    def shell(self) -> str:
        """The script that enters its working folder with its variables, relative to the machine's folder."""
        return join("tasks", self.key, "shell.sh")


def folder_of(name: str, *, sequence: int = 0, mode: str = "") -> TaskFolder:
    """Return the folders of a task in a mode; `sequence` is 0 for the run's first mode."""
    parts = [f"{sequence + 1}-{mode or 'run'}"] if sequence else []
    return TaskFolder(key="/".join(filter(None, (*parts, name))))
