"""The paths of kedge's files on the machine."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
"""The pattern of run names and of code hashes."""
TASK_NAME = re.compile(r"[a-z][a-z0-9-]{0,30}")
"""The pattern of the names of a run's several tasks, which are folders in the results."""
RESERVED = frozenset({"checkpoints", "left-behind", "machine", "output", "tasks"})
"""Names that no task may have: these folders in the results are something else."""


class Layout(NamedTuple):
    """Every path under the machine's root."""

    root: Path

    @property
    def machine_file(self) -> Path:
        """MachineConfig, written when the machine boots."""
        return self.root / "machine.json"

    @property
    def run_file(self) -> Path:
        """RunConfig without its secrets."""
        return self.root / "run.json"

    @property
    def later_file(self) -> Path:
        """The modes that follow the present one: a RunConfig of each, without its secrets."""
        return self.root / "later.json"

    @property
    def secrets_file(self) -> Path:
        """The run's secrets, those of modes that follow included, readable only by the user."""
        return self.root / "secrets.json"

    @property
    def launcher(self) -> Path:
        """The agent's own program."""
        return self.root / "bin" / "kedge-agent"

    @property
    def activation_file(self) -> Path:
        """The script that puts the run's Python on a shell's PATH; `kedge ssh` and `kedge exec` use this path, too."""
        return self.root / "activate.sh"

    @property
    def releases(self) -> Path:
        """One folder for each version of the code that is kept."""
        return self.root / "releases"

    @property
    def code(self) -> Path:
        """The link to the release in use."""
        return self.root / "code"

    @property
    def data(self) -> Path:
        """Data folders, which survive a change of the code."""
        return self.root / "data"

    @property
    def results(self) -> Path:
        """Everything that is uploaded and fetched."""
        return self.root / "results"

    @property
    def samples_file(self) -> Path:
        """Samples of the machine's load, one JSON object a line."""
        return self.results / "samples.jsonl"

    @property
    def cache(self) -> Path:
        """Compiled kernels, which are passed from machine to machine but are not results."""
        return self.root / "cache"

    @property
    def deadline_file(self) -> Path:
        """KEDGE_DEADLINE_FILE: the deadline as it is now, in Unix seconds."""
        return self.root / "deadline"

    @property
    def boot_log(self) -> Path:
        """The phases of every boot, one JSON object a line."""
        return self.root / "boot.jsonl"

    @property
    def ready_file(self) -> Path:
        """The sentinel: says that the boot is over, and whether it succeeded."""
        return self.root / "ready"

    def task(self, key: str) -> TaskLayout:
        """Return the paths of a task; an empty key is that of a run's only task."""
        return TaskLayout(self, key)

    def note(self, name: str) -> Path:
        """Return the path of one of the agent's small state files, such as `heartbeat`."""
        return self.root / f"{name}.json"

    def lock(self, name: str) -> Path:
        """Return the path of one of the agent's locks."""
        return self.root / f".{name}.lock"

    def prepare(self) -> None:
        """Create the folders that everything else needs."""
        for folder in (self.results, self.releases, self.data):
            folder.mkdir(parents=True, exist_ok=True)


class TaskLayout(NamedTuple):
    """The paths of one task: its state, and its part of the results.

    Attributes:
        machine: the machine's paths.
        key: its task and mode (RunConfig.key_of_task); empty for the only task of a run's first mode, which has the
            machine's own folders.
    """

    machine: Layout
    key: str

    @property
    def folder(self) -> Path:
        """Its state, which stays on the machine."""
        return self.machine.root / "tasks" / self.key if self.key else self.machine.root

    @property
    def results(self) -> Path:
        """Its log, outputs and checkpoints."""
        return self.machine.results / self.key

    @property
    def state_file(self) -> Path:
        """The command's state."""
        return self.folder / "state.json"

    @property
    def output(self) -> Path:
        """KEDGE_OUTPUT_DIR."""
        return self.results / "output"

    @property
    def checkpoints(self) -> Path:
        """KEDGE_CHECKPOINT_DIR."""
        return self.results / "checkpoints"

    @property
    def left_behind(self) -> Path:
        """Copies of files that the command wrote outside its outputs."""
        return self.results / "left-behind"

    @property
    def left_behind_file(self) -> Path:
        """The list of these files, LeftBehind."""
        return self.results / "left-behind.json"

    @property
    def begin_file(self) -> Path:
        """When its first attempt on this machine began, after `setup`."""
        return self.folder / "begin.json"

    @property
    def fresh_start_file(self) -> Path:
        """FreshStart: that the current attempt seems to have started over."""
        return self.folder / "anew.json"

    @property
    def kept(self) -> Path:
        """A copy of the last complete checkpoint before the current attempt, where no command writes."""
        return self.results / "checkpoints.kept"

    @property
    def log_file(self) -> Path:
        """The task's one log: every attempt, stop and restart, on this machine and on earlier ones."""
        return self.results / "run.log"

    @property
    def notice_file(self) -> Path:
        """KEDGE_NOTICE_FILE."""
        return self.folder / "notice"

    @property
    def shell_file(self) -> Path:
        """The script with which `kedge exec --task` enters its working folder; the laptop knows this path, too."""
        return self.folder / "shell.sh"

    def owns(self, unit: str) -> bool:
        """Whether a checkpoint (ResultEntry.unit) is one of this task."""
        return self.machine.results / unit == self.checkpoints / unit.rpartition("/")[2]

    def note(self, name: str) -> Path:
        """Return the path of one of the agent's small state files, such as `attempt`."""
        return self.folder / f"{name}.json"

    def lock(self, name: str) -> Path:
        """Return the path of one of the task's locks."""
        return self.folder / f".{name}.lock"

    def prepare(self) -> None:
        """Create its folders."""
        for folder in (self.folder, self.output, self.checkpoints):
            folder.mkdir(parents=True, exist_ok=True)
