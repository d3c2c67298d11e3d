"""The interface of all sources: the task that they get, and the result that they return."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from ...base.errors import AgentError
from ...base.record import Record
from ...base.wire import MachineConfig
from .draft import SourceDraft
from .transfer_progress import TransferProgress

RETRY_SECONDS = 120.0


class Task(Record):
    """The download of one source to one target.

    Attributes:
        address: as in the job file.
        settings: the job's variables and secrets.
        retry_seconds: seconds without progress after which a source is given up.
    """

    address: str
    draft: SourceDraft
    progress: TransferProgress
    machine: MachineConfig
    settings: Mapping[str, str] = {}
    retry_seconds: float = RETRY_SECONDS

    def __repr__(self) -> str:
        return f"Task(address={self.address!r})"

    def setting(self, *names: str) -> str:
        """Return the first of these variables and secrets that is set; empty if none is."""
        return next((self.settings[name] for name in names if self.settings.get(name)), "")

    def credential(self, name: str) -> str:
        """Return a secret for use in a request; empty if it isn't set.

        Raises:
            AgentError: it has characters that no request can have; Python's own error would leak it into the log.
        """
        value = self.setting(name).strip()
        if value.isascii() and value.isprintable():
            return value
        raise AgentError(
            f"{name} can't be sent",
            why="it has a line break, or another character that is invalid in a credential",
            fix="set it again in your shell, without extra characters, and start again",
        )


class FetchedSource(NamedTuple):
    """A complete download.

    Attributes:
        path: the file or folder to move to the target, within the draft.
        version: its exact version: a commit, an ETag or a checksum; empty if unknown.
    """

    path: Path
    version: str = ""
