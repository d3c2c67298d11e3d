"""Ports for transfers of code, data and results. Adapters implement them; tests bring fakes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Protocol

# Used in signatures only, so that importing a port costs nothing.
if TYPE_CHECKING:
    from orchestrator.core.job import DataMount
    from orchestrator.core.machine import Machine
    from orchestrator.core.ports import Remote
    from orchestrator.core.protocol.report import Command
    from orchestrator.core.protocol.results import ResultFile
    from orchestrator.core.protocol.tree import Arrival
    from orchestrator.core.protocol.wire import RunConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeSummary:
    """The code on the laptop at one instant.

    Attributes:
        hash: of paths, modes and contents; the same tree has the same hash everywhere.
        bytes: of the files, uncompressed.
    """

    hash: str
    files: int
    bytes: int


Progress = Callable[[int, int], None]
"""Called with the bytes done and the total (0 if unknown)."""


class CodeSource(Protocol):
    """The code of a job on the laptop."""

    def summary(self) -> CodeSummary:
        """Read the tree and summarize it.

        Raises:
            BadRequestError: the tree holds something that can't be sent, such as a link that leaves it.
        """

    def write(self, path: str) -> str:
        """Write the whole tree to a new file, as a gzip'd stream that the agent accepts; return the content hash."""

    def send(self, remote: Remote, machine: Machine, progress: Progress) -> str:
        """Bring the machine's code to this state, sending as little as possible, and return the content hash.

        A connection that breaks at any instant leaves the machine with either the old tree or the new one, complete.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedCode:
    """Code in the object store.

    Attributes:
        hash: content hash, which identifies the code on machines.
        sha256: of its archive, as hex; a machine checks it before it unpacks anything.
    """

    hash: str
    sha256: str


class Stage(Protocol):
    """The part of the object store where a machine finds what it needs to start by itself: its run's prefix.

    Others may write there too. Existing content is therefore compared or overwritten, and machines know its SHA-256.
    """

    def put_code(self, run_id: str, source: CodeSource, progress: Progress) -> StagedCode:
        """Upload the code, unless the identical archive is there already."""

    def put_start(self, run_id: str, config: RunConfig) -> str:
        """Upload the command's configuration, which holds no secrets, and return its SHA-256."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedData:
    """A data set in the object store.

    Attributes:
        name: under which machines ask for it.
        index: SHA-256 of its list of files, as hex.
    """

    name: str
    index: str


class DataStage(Protocol):
    """The object store's copies of the laptop's data, which machines download."""

    def put_data(self, mount: DataMount, progress: Progress, *, delete: bool = False) -> StagedData:
        """Bring the copy to the state of the mount's source, sending only what isn't there yet.

        Raises:
            BadRequestError: the source doesn't exist, or something in it can't be sent.
        """

    def remove_data(self, mount: DataMount) -> None:
        """Remove the copy of a mount's source, if there is one.

        Raises:
            KedgeError: the store can't be used.
        """


class DataMover(Protocol):
    """Copies data folders and results between the laptop and a machine."""

    def send(self, mount: DataMount, machine: Machine, progress: Progress, *, delete: bool = False) -> None:
        """Bring `<root>/data/<target>` on the machine to the state of the mount's source."""

    def fetch(
        self,
        machine: Machine,
        folder: str,
        destination: str,
        progress: Progress,
        *,
        files: Sequence[ResultFile] = (),
        within: timedelta = timedelta(minutes=10),
    ) -> Arrival:
        """Copy a folder of the machine to the laptop; files that are there already aren't sent again.

        Args:
            machine: the sender.
            folder: on the machine.
            destination: on the laptop; no link in it will lead out of it.
            progress: called now and then.
            files: the machine's list of the folder's content; links that aren't listed aren't copied.
            within: how long it may take.

        Returns:
            What was left out or renamed, and what differs from what the machine listed.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class LastUpload:
    """The last copy that a machine uploaded of a run's results.

    Attributes:
        machine: the one that uploaded it.
        command: the command's state at that time.
    """

    machine: str
    command: Command
    at: datetime


class ResultStore(Protocol):
    """The object store's copy of one run. The agent uploaded it, so its content is as trustworthy as the machine.

    All methods that read the manifest raise NonsenseError if it is invalid.
    """

    @property
    def url(self) -> str:
        """The store's address, which the agent is given."""

    def manifest(self, run_id: str) -> tuple[ResultFile, ...]:
        """List the uploaded results; empty if there are none."""

    def last_upload(self, run_id: str) -> LastUpload | None:
        """Return what the agent uploaded last; None if it never did."""

    def read_file(self, run_id: str, path: str) -> bytes:
        """Return the end of one uploaded file, such as `run.log`; empty if it doesn't exist."""

    def fetch(self, run_id: str, destination: str, progress: Progress) -> Arrival:
        """Copy the uploaded results into a folder, verify them, and return what was left out or renamed.

        Raises:
            KedgeError: a file is missing or damaged.
        """

    def remove(self, run_id: str) -> None:
        """Remove everything that the store holds of a run, which can't be resumed or fetched after that.

        Raises:
            KedgeError: the store can't be used.
        """
