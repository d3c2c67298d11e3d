"""The machines that run a task together, as one of them sees them."""

from __future__ import annotations

from ..base.config import TaskContext
from ..base.record import Record
from ..base.wire import MachineConfig, RunConfig


class Group(Record):
    """The machines of a task.

    Attributes:
        run: the run's name.
        task: the task's key.
        rank: this machine's number; 0 is the head.
        addresses: the private address of each machine, by rank.
        port: the task's port on the head.
        least: with how many machines the command can go on; all of them, unless the job is elastic.
        most: with how many at most.
        wait: how long the head waits for the others, in seconds.
        patience: how long all wait for each other once they have met: one may be lost, and be replaced.
        recovers: a lost machine is replaced.
        token: known to the run's machines alone; empty in a configuration of an earlier version.
    """

    run: str
    task: str
    rank: int
    addresses: tuple[str, ...]
    port: int
    least: int
    most: int
    wait: float
    patience: float
    recovers: bool
    token: str

    def __repr__(self) -> str:
        return f"Group(run={self.run!r}, task={self.task!r}, rank={self.rank})"

    @property
    def size(self) -> int:
        """The number of machines."""
        return len(self.addresses)

    @property
    def is_elastic(self) -> bool:
        """Whether the command goes on with fewer machines."""
        return self.least < self.size or self.most > self.size

    @property
    def place(self) -> str:
        """The head's address and the task's port, for messages."""
        return f"{self.addresses[0]}, port {self.port}"

    def name(self, rank: int) -> str:
        """Name a machine in messages."""
        return f"{'the head' if rank == 0 else f'node {rank}'} ({self.addresses[rank]})"


_NEXT_MODE = "next mode"
"""No task has such a name."""
_WAIT_SECONDS = 900.0
"""The same as torchrun's own time limit for its rendezvous."""
_WAIT_SHARE = 0.25
"""At most this share of the machine's lifetime."""
_REPLACED_SECONDS = 2700.0
"""How long a replacement may take: kedge gives a boot half an hour; then it sends code and data."""


def group_of(context: TaskContext) -> Group | None:
    """Return the machines that run this task together; None if it runs on this machine alone."""
    run, machine = context.run, context.machine
    if len(run.addresses) < 2 or not context.config.port or machine.rank >= len(run.addresses):
        return None
    return _make(run, machine, context.task.key, context.config.port)


def group_of_modes(run: RunConfig, machine: MachineConfig) -> Group | None:
    """Return the machines that begin the run's next mode together; None if there is one machine."""
    if len(run.addresses) < 2 or not run.modes_port or machine.rank >= len(run.addresses):
        return None
    return _make(run, machine, _NEXT_MODE, run.modes_port)


def _make(run: RunConfig, machine: MachineConfig, task: str, port: int) -> Group:
    least, most = run.elastic or (len(run.addresses), len(run.addresses))
    wait = min(_WAIT_SECONDS, _WAIT_SHARE * (machine.deadline_at - machine.created))
    return Group(
        run=run.run,
        task=task,
        rank=machine.rank,
        addresses=run.addresses,
        port=port,
        least=least,
        most=most,
        wait=wait,
        patience=_REPLACED_SECONDS if run.recovers else wait,
        recovers=run.recovers,
        token=run.token,
    )
