"""The paths of kedge's files on the machine."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
"""The pattern of run names and of code hashes."""


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
    def secrets_file(self) -> Path:
        """The run's secrets, readable only by the user."""
        return self.root / "secrets.json"

    @property
    def state_file(self) -> Path:
        """The command's state."""
        return self.root / "state.json"

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
    def fresh_start_file(self) -> Path:
        """FreshStart: that the current attempt seems to have started over."""
        return self.root / "anew.json"

    @property
    def kept(self) -> Path:
        """A copy of the last complete checkpoint before the current attempt, where no command writes."""
        return self.results / "checkpoints.kept"

    @property
    def log_file(self) -> Path:
        """The run's one log: every attempt, stop and restart, on this machine and on earlier ones."""
        return self.results / "run.log"

    @property
    def samples_file(self) -> Path:
        """Samples of the machine's load, one JSON object a line."""
        return self.results / "samples.jsonl"

    @property
    def cache(self) -> Path:
        """Compiled kernels, which are passed from machine to machine but are not results."""
        return self.root / "cache"

    @property
    def notice_file(self) -> Path:
        """KEDGE_NOTICE_FILE."""
        return self.root / "notice"

    @property
    def boot_log(self) -> Path:
        """The phases of every boot, one JSON object a line."""
        return self.root / "boot.jsonl"

    @property
    def ready_file(self) -> Path:
        """The sentinel: says that the boot is over, and whether it succeeded."""
        return self.root / "ready"

    def note(self, name: str) -> Path:
        """Return the path of one of the agent's small state files, such as `heartbeat`."""
        return self.root / f"{name}.json"

    def lock(self, name: str) -> Path:
        """Return the path of one of the agent's locks."""
        return self.root / f".{name}.lock"

    def prepare(self) -> None:
        """Create the folders that everything else needs."""
        for folder in (self.output, self.checkpoints, self.releases, self.data):
            folder.mkdir(parents=True, exist_ok=True)
