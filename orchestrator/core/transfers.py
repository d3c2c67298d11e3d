"""Ports for transfers of code, data and results. Adapters implement them; tests bring fakes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Protocol

# Used in signatures only, so that importing a port costs nothing.
if TYPE_CHECKING:
    from orchestrator.core.job import DataMount
    from orchestrator.core.machine import Machine
    from orchestrator.core.ports import Remote
    from orchestrator.core.protocol.report import Command, ModeReport
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


class SecretStore(Protocol):
    """Where a provider stores the secrets of a run's machines; the provider's `release` deletes them with the run."""

    def place(self, run_id: str) -> str:
        """Name the place, for the plan.

        Raises:
            BadRequestError: others than the run's machines could read them there.
        """

    def put(self, order: SecretOrder) -> str:
        """Store them, recorded by name before, and return where the machine reads them (BootOrder.secrets_url).

        Raises:
            BadRequestError: as for `place`, or a value can't be stored.
            KedgeError: the provider refuses, or doesn't answer; some may be stored.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretOrder:
    """Secrets for one machine.

    Attributes:
        values: by the name of their variable.
        tags: the user's own, for what is created.
    """

    run_id: str
    machine_id: str
    values: Mapping[str, str] = field(repr=False)
    tags: tuple[tuple[str, str], ...] = ()


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
        only: bool = False,
        within: timedelta = timedelta(minutes=10),
    ) -> Arrival:
        """Copy a folder of the machine to the laptop; files that are there already aren't sent again.

        Args:
            machine: the sender.
            folder: on the machine.
            destination: on the laptop; no link in it will lead out of it.
            progress: called now and then.
            files: the machine's list of the folder's content; links that aren't listed aren't copied.
            only: copy only what is in this list.
            within: how long it may take.

        Returns:
            What was left out or renamed, and what differs from what the machine listed.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class LastUpload:
    """The last copy that a machine uploaded of a run's results.

    Attributes:
        machine: the one that uploaded it.
        command: the state of all tasks together at that time.
        tasks: the states of the tasks with names, by their folders in the results.
        sequence: of the run's mode at that time.
        earlier: the modes before it.
    """

    machine: str
    command: Command
    at: datetime
    tasks: dict[str, Command] = field(default_factory=dict)
    sequence: int = 0
    earlier: tuple[ModeReport, ...] = ()


class ResultStore(Protocol):
    """The object store's copy of one run. The agent uploaded it, so its content is as trustworthy as the machine.

    All methods that read the manifest raise NonsenseError if it is invalid.
    """

    @property
    def url(self) -> str:
        """The store's address, which the agent is given."""

    def manifest(self, run_id: str, *, rank: int = 0) -> tuple[ResultFile, ...]:
        """List the results that the machine of a rank has uploaded; empty if there are none."""

    def last_upload(self, run_id: str, *, rank: int = 0) -> LastUpload | None:
        """Return what the agent of the machine of a rank uploaded last; None if it never did."""

    def read_file(self, run_id: str, path: str, *, rank: int = 0) -> bytes:
        """Return the end of one file, such as `run.log`, as the machine of a rank uploaded it; empty without one."""

    def fetch(
        self,
        run_id: str,
        destination: str,
        progress: Progress,
        *,
        folders: Sequence[str] = (),
        rank: int = 0,
        only: Collection[str] | None = None,
    ) -> Arrival:
        """Copy the results that the machine of a rank has uploaded into a folder, and verify them.

        Args:
            run_id: the run.
            destination: on the laptop.
            progress: called now and then.
            folders: copy only these folders of the results; empty for everything.
            rank: the machine's number.
            only: copy only these paths; None for everything.

        Returns:
            What was left out or renamed.

        Raises:
            KedgeError: a file is missing or damaged.
        """

    def remove(self, run_id: str) -> None:
        """Remove everything that the store holds of a run, which can't be resumed or fetched after that.

        Raises:
            KedgeError: the store can't be used.
        """
