"""What touches the world, as the engine sees it. Adapters implement these; tests bring fakes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Protocol

from orchestrator.core.decoding import ANSWER_BYTES

# Named in signatures only: a port costs nothing to import.
if TYPE_CHECKING:
    from orchestrator.core.job import DataMount, Resources
    from orchestrator.core.machine import Machine, MachineEnd, MachineOrder, SshAddress
    from orchestrator.core.offer import Offer
    from orchestrator.core.report import Command, ResultFile
    from orchestrator.core.sweep import Sweep
    from orchestrator.core.tree import Arrival
    from orchestrator.core.wire import RunConfig


class Clock(Protocol):
    """Time."""

    def now(self) -> datetime:
        """Return the present instant, aware, in UTC."""

    def sleep(self, duration: timedelta) -> None:
        """Let time pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Supplies:
    """What a machine is brought over its first connection, for want of a role to fetch it with; it holds secrets.

    Attributes:
        argv: takes the content on standard input; cut off it leaves what was there, and given again it is no error.
    """

    argv: tuple[str, ...]
    content: bytes = field(repr=False)


class Provider(Protocol):
    """Somebody who rents machines. One contract suite (tests/contract) runs over all of them."""

    name: str
    boots_alone: bool
    """Its machines can take code from the object store and start the command by themselves."""
    offers_basis: str
    """Where the prices of the last `offers` come from, `live` or a date, and what else to know about them."""
    caveats: tuple[str, ...]
    """What to know of its machines before renting one, a line each, such as what is left to end a forgotten one."""
    ends_by_itself: bool
    """The bill of a machine that nobody looks after ends at its deadline."""

    def offers(self, resources: Resources) -> Sequence[Offer]:
        """List what is for sale now and fits the wishes, in the order in which to try it.

        Raises:
            BadRequestError: a wish that this provider doesn't know.
            NoCapacityError: nothing fits, and the provider can say why, as for a quota.
        """

    def refresh_offers(self) -> str:
        """Write the snapshot that offers come from without a network anew, and say where it lies.

        Raises:
            BadRequestError: this provider needs none.
        """

    def machines(self) -> Sequence[Machine]:
        """List every machine that carries kedge's mark and isn't gone, as the provider sees it."""

    def sweep(self) -> Sweep:
        """List everything that carries kedge's mark, in every region of the account: `kedge reap` goes by it.

        `destroy`, `describe` and `release` of this object find what its sweep has found. What all runs share, such as
        the laptop's SSH key or what `bootstrap` has made, is nothing that a run has.

        Raises:
            BadRequestError: there are no credentials.
            KedgeError: the provider doesn't answer, or doesn't accept them.
        """

    def create(self, order: MachineOrder) -> Machine:
        """Create the machine, or return the one that already carries the order's id.

        Raises:
            NoCapacityError: this offer can't be had now; the next may.
        """

    def describe(self, machine_id: str) -> Machine | None:
        """Look one machine up; None when the provider confirms that it is gone."""

    def why_ended(self, machine_id: str) -> MachineEnd | None:
        """Say what has ended a machine, or is ending it; None where the provider doesn't know, or no longer.

        Raises:
            KedgeError: it doesn't answer.
        """

    def supplies(self, machine_id: str) -> Supplies | None:
        """Say what a machine must be brought before it can go on booting; None where it fetches all by itself."""

    def pin(self, machine_id: str, host_key: str) -> None:
        """Remember the host key that has replaced a machine's provisional one."""

    def guard(self, machine_id: str) -> None:
        """Make sure that what ends a machine from outside, if it isn't gone, is in place; idempotent.

        `create` does it, unless its process dies before.

        Raises:
            KedgeError: it can't be told, or can't be made: a later call may.
        """

    def reopen(self, machine_id: str, ssh_from: str) -> bool:
        """Let a range of addresses in (empty: this computer's own), not the one before; True when that changed it.

        Raises:
            KedgeError: the address can't be found out, or the provider doesn't allow it.
        """

    def destroy(self, machine_id: str) -> None:
        """Ask for its end; a machine that is gone already is no error. `describe` tells when it is done."""

    def release(self, run_id: str) -> Sequence[str]:
        """Remove what a run without machines still has: roles, firewalls, schedules; volumes as their at_end says.

        Returns:
            What was removed or kept, one line each.

        Raises:
            StillBillingError: some of it isn't done yet; a second call goes on with the rest.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """A command that ended on a machine."""

    exit_code: int
    stdout: bytes
    stderr: bytes


class Remote(Protocol):
    """An open way into one machine. Commands are argv lists, quoted once, here."""

    def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", timeout: timedelta | None = None, most: int = ANSWER_BYTES
    ) -> Completed:
        """Run a command to its end.

        Raises:
            NonsenseError: it prints more than `most` bytes on one of its outputs.
            UnreachableError: the connection broke, or the timeout passed.
        """

    def send(self, argv: Sequence[str], chunks: Iterable[bytes], *, timeout: timedelta | None = None) -> Completed:
        """Run a command and stream chunks into its standard input.

        Raises:
            NonsenseError: it prints more than an answer holds.
            UnreachableError: the connection broke, or the timeout passed.
        """

    def lines(self, argv: Sequence[str]) -> Iterator[bytes]:
        """Run a command and yield what it prints line by line, without line ends, as it comes.

        Raises:
            NonsenseError: a line has no end, or it complains without one.
            UnreachableError: the connection broke before the command ended, or nothing came for too long.
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

    def close(self) -> None:
        """Give up what this command does on all machines, from any thread; what earlier ones left open stays open."""


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

    def write(self, path: str) -> str:
        """Write the whole tree, as one gzip'd stream that the agent takes, to a new file; return the content hash."""

    def send(self, remote: Remote, machine: Machine, progress: Progress) -> str:
        """Bring the machine's code to this state, sending as little as needed, and return the content hash.

        A connection cut at any instant leaves the machine with either the old tree or the new one, whole.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedCode:
    """Code in the object store.

    Attributes:
        hash: of its content, by which it is known on machines.
        sha256: of its archive, as hex: what a machine compares with before it unpacks anything.
    """

    hash: str
    sha256: str


class Stage(Protocol):
    """Where a machine finds what it needs to start by itself: the object store, at its run's place.

    Others may write there too: what lies there is compared, or written again, and machines are told its SHA-256.
    """

    def put_code(self, run_id: str, source: CodeSource, progress: Progress) -> StagedCode:
        """Bring the code there, unless the very same archive is there already."""

    def put_start(self, run_id: str, config: RunConfig) -> str:
        """Leave the command's configuration there, which holds no secrets, and return its SHA-256."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedData:
    """A data set in the object store.

    Attributes:
        name: which machines ask for.
        index: SHA-256 of what says what it holds, as hex.
    """

    name: str
    index: str


class DataStage(Protocol):
    """The object store's copies of the laptop's data, which machines mirror."""

    def put_data(self, mount: DataMount, progress: Progress, *, delete: bool = False) -> StagedData:
        """Bring the copy to the state of the mount's source, sending only what isn't there.

        Raises:
            BadRequestError: there is no such source, or something in it can't be sent.
        """

    def remove_data(self, mount: DataMount) -> None:
        """Remove the copy of a mount's source, if there is one.

        Raises:
            KedgeError: the store can't be used.
        """


class DataMover(Protocol):
    """Moves data folders and results between the laptop and a machine."""

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
        """Copy a folder of the machine's into one of the laptop's; what is there already isn't sent again.

        Args:
            machine: the sender.
            folder: on the machine.
            destination: on the laptop; no link in it will lead out of it.
            progress: called now and then.
            files: what the machine says lies there; links that it doesn't name don't come.
            within: how long it may take.

        Returns:
            What was left out or renamed.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Shipment:
    """The last copy that a machine made of a run's results.

    Attributes:
        machine: whose.
        command: how the command was then.
    """

    machine: str
    command: Command
    at: datetime


class ResultStore(Protocol):
    """The object store's copy of one run: what the agent shipped, and so a machine's word.

    All that read the manifest raise NonsenseError where it is none.
    """

    @property
    def url(self) -> str:
        """Where it is; what the agent is told."""

    def manifest(self, run_id: str) -> tuple[ResultFile, ...]:
        """List the results that were shipped, empty for none."""

    def last_shipment(self, run_id: str) -> Shipment | None:
        """Say what the agent shipped last; None where it never did."""

    def read_file(self, run_id: str, path: str) -> bytes:
        """Return the end of one shipped file, such as `run.log`; empty where it isn't there."""

    def fetch(self, run_id: str, destination: str, progress: Progress) -> Arrival:
        """Copy the shipped results into a folder, verify them, and say what was left out or renamed.

        Raises:
            KedgeError: a file is missing or damaged.
        """

    def remove(self, run_id: str) -> None:
        """Remove all that the store holds of a run; nobody can resume or fetch it after that.

        Raises:
            KedgeError: the store can't be used.
        """
