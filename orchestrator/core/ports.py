"""What touches the world, as the engine sees it. Adapters implement these; tests bring fakes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Protocol

# Named in signatures only: a port costs nothing to import.
if TYPE_CHECKING:
    from orchestrator.core.job import DataMount, Resources
    from orchestrator.core.machine import Machine, MachineOrder, SshAddress
    from orchestrator.core.offer import Offer
    from orchestrator.core.report import Command, ResultFile


class Clock(Protocol):
    """Time."""

    def now(self) -> datetime:
        """Return the present instant, aware, in UTC."""

    def sleep(self, duration: timedelta) -> None:
        """Let time pass."""


class Provider(Protocol):
    """Somebody who rents machines. One contract suite (tests/contract) runs over all of them."""

    name: str

    def offers(self, resources: Resources) -> Sequence[Offer]:
        """List what is for sale now and fits the wishes, in the order in which to try it.

        Raises:
            BadRequestError: a wish that this provider doesn't know.
        """

    def machines(self) -> Sequence[Machine]:
        """List every machine that carries kedge's mark and isn't gone, as the provider sees it."""

    def create(self, order: MachineOrder) -> Machine:
        """Create the machine, or return the one that already carries the order's id.

        Raises:
            NoCapacityError: this offer can't be had now; the next may.
        """

    def describe(self, machine_id: str) -> Machine | None:
        """Look one machine up; None when the provider confirms that it is gone."""

    def destroy(self, machine_id: str) -> None:
        """Ask for its end; a machine that is gone already is no error. `describe` tells when it is done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """A command that ended on a machine."""

    exit_code: int
    stdout: bytes
    stderr: bytes


class Remote(Protocol):
    """An open way into one machine. Commands are argv lists, quoted once, here."""

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout: timedelta | None = None) -> Completed:
        """Run a command to its end.

        Raises:
            UnreachableError: the connection broke, or the timeout passed.
        """

    def send(self, argv: Sequence[str], chunks: Iterable[bytes], *, timeout: timedelta | None = None) -> Completed:
        """Run a command and stream chunks into its standard input.

        Raises:
            UnreachableError: the connection broke, or the timeout passed.
        """

    def lines(self, argv: Sequence[str]) -> Iterator[bytes]:
        """Run a command and yield what it prints line by line, without line ends, as it comes.

        Raises:
            UnreachableError: the connection broke before the command ended.
        """

    def close(self) -> None:
        """Leave; a control socket for the next command stays."""


class Connector(Protocol):
    """Makes ways into machines, always with their own host keys."""

    def connect(self, address: SshAddress) -> Remote:
        """Open a way in; one that is open already, in this command or from an earlier one, is used again.

        Raises:
            UnreachableError: nobody answers, or somebody else does (host key).
        """

    def ssh_argv(self, address: SshAddress, *options: str) -> list[str]:
        """Return the OpenSSH client's argv up to and including the host, for terminals and for rsync."""

    def forget(self, address: SshAddress) -> None:
        """Close control sockets and drop pinned keys of a machine that is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeSummary:
    """The laptop's code at one instant.

    Attributes:
        hash: of paths, modes and contents; the same tree has the same hash everywhere.
        bytes: of the files, uncompressed.
    """

    hash: str
    files: int
    bytes: int


Progress = Callable[[int, int], None]
"""Called with bytes done and bytes in all (0 when unknown)."""


class CodeSource(Protocol):
    """The code of a job on the laptop."""

    def summary(self) -> CodeSummary:
        """Read the tree and say what it is.

        Raises:
            BadRequestError: the tree holds something that can't be sent, such as a link that leaves it.
        """

    def send(self, remote: Remote, machine: Machine, progress: Progress) -> str:
        """Bring the machine's code to this state, sending as little as needed, and return the content hash.

        A connection cut at any instant leaves the machine with either the old tree or the new one, whole.
        """


class DataMover(Protocol):
    """Moves data folders and results between the laptop and a machine."""

    def send(self, mount: DataMount, machine: Machine, progress: Progress, *, delete: bool = False) -> None:
        """Bring `<root>/data/<target>` on the machine to the state of the mount's source."""

    def fetch(self, machine: Machine, folder: str, destination: str, progress: Progress) -> None:
        """Copy a folder of the machine's into one of the laptop's; what is there already isn't sent again."""


class ResultStore(Protocol):
    """The object store's copy of one run: what the agent shipped."""

    @property
    def url(self) -> str:
        """Where it is; what the agent is told."""

    def manifest(self, run_id: str) -> tuple[ResultFile, ...]:
        """List the results that were shipped, empty for none."""

    def command(self, run_id: str) -> Command | None:
        """Return the command's state as it was last shipped; None where nothing was."""

    def shipped_at(self, run_id: str) -> datetime | None:
        """Return when the agent last shipped; None where it never did."""

    def read_text(self, run_id: str, path: str) -> str:
        """Return one shipped text file, such as `run.log`; empty where it isn't there."""

    def fetch(self, run_id: str, destination: str, progress: Progress) -> None:
        """Copy the shipped results into a folder, and verify them.

        Raises:
            KedgeError: a file is missing or damaged.
        """
