"""What every kind of source is given, and what it gives back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from ..errors import AgentError
from ..wire import MachineConfig
from .draft import Draft
from .tally import Tally

PATIENCE_SECONDS = 120.0


@dataclass(frozen=True)
class Task:
    """One source on its way to one target.

    Attributes:
        address: as the job file has it.
        settings: the job's variables and secrets.
        patience: seconds without progress after which a source is given up.
    """

    address: str
    draft: Draft
    tally: Tally
    machine: MachineConfig
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)
    patience: float = PATIENCE_SECONDS

    def setting(self, *names: str) -> str:
        """Return the first of these variables and secrets that is there; empty for none."""
        return next((self.settings[name] for name in names if self.settings.get(name)), "")

    def credential(self, name: str) -> str:
        """Return a secret that a request carries; empty where there is none.

        Raises:
            AgentError: no request can carry it; Python's own error would show it in the run's log.
        """
        value = self.setting(name).strip()
        if value.isascii() and value.isprintable():
            return value
        raise AgentError(
            f"{name} can't be sent",
            why="it holds a line end, or another character that no credential has",
            fix="set it again in your shell, without what was copied along with it, and start again",
        )


class Fetched(NamedTuple):
    """A source that is here, whole.

    Attributes:
        path: the file or folder to put in place, within the draft.
        version: what exactly it was, as its own world says: a commit, an ETag, a checksum; empty where nobody tells.
    """

    path: Path
    version: str = ""
