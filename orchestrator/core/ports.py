"""Ports: what the engine needs from clocks, providers and connections. Adapters implement them; tests bring fakes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Protocol, TypeVar

from orchestrator.core.protocol.decoding import ANSWER_BYTES

# Used in signatures only, so that importing a port costs nothing.
if TYPE_CHECKING:
    from orchestrator.core.job import Resources
    from orchestrator.core.machine import Machine, MachineEnd, MachineOrder, SshAddress
    from orchestrator.core.offer import Offer
    from orchestrator.core.sweep import Sweep

_Seen = TypeVar("_Seen")


class Clock(Protocol):
    """Time."""

    def now(self) -> datetime:
        """Return the current time, aware, in UTC."""

    def sleep(self, duration: timedelta) -> None:
        """Wait that long."""


class PollUntil(Protocol):
    """Waits until a condition holds."""

    def __call__(
        self,
        look: Callable[[], _Seen | None],
        within: timedelta,
        clock: Clock,
        *,
        first: timedelta = ...,
        longest: timedelta = ...,
    ) -> _Seen | None:
        """Call `look` until it returns something, and return that; None if the time is up.

        None and False mean "not yet". The pauses between two calls grow from `first` to `longest`.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Supplies:
    """What a machine without an IAM role receives over its first connection; it holds secrets.

    Attributes:
        argv: the command that reads the content from standard input; it is atomic, and safe to repeat.
    """

    argv: tuple[str, ...]
    content: bytes = field(repr=False)


class Provider(Protocol):
    """A company, or this computer, that provides machines. One contract suite (tests/contract) tests all of them."""

    name: str
    can_start_at_boot: bool
    """`start: boot` works: its machines can take code from the object store and start the command by themselves."""
    offers_basis: str
    """Source of the prices of the last `offers`: `live` or a date, with other remarks about them."""
    caveats: tuple[str, ...]
    """What to know before renting one of its machines, one line each, such as what can still end a forgotten one."""
    ends_by_itself: bool
    """A machine stops billing at its deadline even if nobody looks after it."""

    def offers(self, resources: Resources) -> Sequence[Offer]:
        """List what is for sale now and fits the requirements, in the order to try it.

        Raises:
            BadRequestError: this provider doesn't support a requirement.
            NoCapacityError: nothing fits, and the provider can say why, as for a quota.
        """

    def refresh_offers(self) -> str:
        """Refresh the offers' snapshot, which is used without a network, and return where it was written.

        Raises:
            BadRequestError: this provider has no snapshot.
        """

    def machines(self) -> Sequence[Machine]:
        """List every machine that carries kedge's tag and isn't gone, as the provider sees it."""

    def sweep(self) -> Sweep:
        """List everything that carries kedge's tag, in every region of the account; `kedge reap` works from this.

        Afterwards `destroy`, `describe` and `release` of this object find what the sweep has found. Resources that all
        runs share, such as the laptop's SSH key or the result of `bootstrap`, belong to no run.

        Raises:
            BadRequestError: there are no credentials.
            KedgeError: the provider doesn't answer, or rejects the credentials.
        """

    def create(self, order: MachineOrder) -> Machine:
        """Create the machine, or return the one that already carries the order's id.

        Raises:
            NoCapacityError: this offer isn't available now; the next one may be.
        """

    def describe(self, machine_id: str) -> Machine | None:
        """Look up one machine; None if the provider confirms that it is gone."""

    def why_ended(self, machine_id: str) -> MachineEnd | None:
        """Return what has ended a machine, or is ending it; None if the provider doesn't know, or has forgotten.

        Raises:
            KedgeError: the provider doesn't answer.
        """

    def supplies(self, machine_id: str, secrets: Mapping[str, str]) -> Supplies | None:
        """Return what a machine must receive before its boot can continue; None if it fetches everything by itself.

        Args:
            machine_id: the machine.
            secrets: what its command needs, by the name of the variable, if the machine starts it by itself.
        """

    def pin(self, machine_id: str, host_key: str) -> None:
        """Store the host key that has replaced a machine's provisional one."""

    def guard(self, machine_id: str) -> None:
        """Ensure that a guard outside of the machine will end it at its deadline; idempotent.

        `create` does this, unless its process dies first.

        Raises:
            KedgeError: the guard couldn't be checked or created; a later call may succeed.
        """

    def move_deadline(self, machine_id: str, deadline_at: datetime) -> Sequence[str]:
        """Move what holds a machine's deadline outside of it: marks, this computer's record, the guard; idempotent.

        The machine's own timer is moved over SSH. A local machine has none: its init is moved here.

        Returns:
            What still shows the old deadline because it can't be changed, one line each.

        Raises:
            KedgeError: some of it couldn't be moved; a later call continues.
        """

    def reopen(self, machine_id: str, ssh_from: str) -> bool:
        """Open SSH to a range of addresses (empty: this computer's) instead of the old one; True if that changed it.

        Raises:
            KedgeError: the address can't be determined, or the provider doesn't allow it.
        """

    def destroy(self, machine_id: str) -> None:
        """Request its end; succeeds if the machine is gone already. `describe` tells when it is done."""

    def delete_volume(self, volume_id: str, region: str) -> None:
        """Delete a data volume that a sweep has found, whatever is to become of it at its run's end; succeeds if gone.

        Raises:
            BadRequestError: kedge didn't make it, or the provider has no data volumes.
            ConflictError: a machine has it.
            KedgeError: the provider doesn't allow it.
        """

    def release(self, run_id: str) -> Sequence[str]:
        """Remove what a run without machines still has: roles, firewalls, schedules; volumes according to their at_end.

        Returns:
            What was removed or kept, one line each.

        Raises:
            StillBillingError: some of it couldn't be removed yet; a second call continues with the rest.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """The result of a command that ended on a machine."""

    exit_code: int
    stdout: bytes
    stderr: bytes


class Remote(Protocol):
    """An open connection to one machine. Commands are argv lists; this class quotes them."""

    def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", timeout: timedelta | None = None, most: int = ANSWER_BYTES
    ) -> Completed:
        """Run a command to its end.

        Raises:
            NonsenseError: it prints more than `most` bytes on one of its outputs.
            UnreachableError: the connection broke, or the timeout passed.
        """

    def send(self, argv: Sequence[str], chunks: Iterable[bytes], *, timeout: timedelta | None = None) -> Completed:
        """Run a command and stream chunks to its standard input.

        Raises:
            NonsenseError: it prints more than the limit of an answer.
            UnreachableError: the connection broke, or the timeout passed.
        """

    def lines(self, argv: Sequence[str]) -> Iterator[bytes]:
        """Run a command and yield its output line by line, without line ends, as it arrives.

        Raises:
            NonsenseError: a line is too long, or its error output is.
            UnreachableError: the connection broke before the command ended, or it was silent for too long.
        """

    def close(self) -> None:
        """Close the connection; its control socket stays open for the next command."""


class Connector(Protocol):
    """Connects to machines, and accepts only their own host keys."""

    def connect(self, address: SshAddress) -> Remote:
        """Connect to a machine; reuse a connection that this command or an earlier one has left open.

        Raises:
            UnreachableError: the machine doesn't answer, or its host key is wrong.
        """

    def opened(self, address: SshAddress) -> Remote | None:
        """Return the connection that an earlier command has left open; None if there is none. The provider isn't used.

        Raises:
            UnreachableError: it broke just now.
        """

    def ssh_argv(self, address: SshAddress, *options: str) -> list[str]:
        """Return the OpenSSH client's argv up to and including the host, for terminals and for rsync."""

    def forget(self, address: SshAddress) -> None:
        """Close the control sockets of a machine that is gone, and drop its pinned keys."""

    def close(self) -> None:
        """Cancel what this command does on all machines, from any thread; keep connections of earlier commands open."""
