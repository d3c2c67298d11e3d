"""The actions that a plan consists of, as a closed union. `plan` prints the same objects that `apply` executes.

An action names its machine by an id that exists before the machine does, so that later actions can refer to a
machine that an earlier one creates.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from orchestrator.core.job import DataMount
from orchestrator.core.offer import Offer
from orchestrator.core.task import SupervisorKind
from orchestrator.core.values.deadlines import MovedDeadline, MovedRun


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateMachine:
    """Rent a machine, or all machines of a run together: from the first of these offers that is available.

    Attributes:
        starts: the machine takes the staged code and starts the command by itself.
        ssh_from: who may reach it over SSH, as CIDR; empty if its provider or the user's own network decides that.
        others: further machines from the same offer, with the next ranks: all are created, or none is left. An intent
            has none: each machine has its own.
        rank: of the first machine.
        joins: the other machines of a run that it completes. If it is refused, those of them that have never booted are
            ended; the others keep what they have until another plan brings their results to safety.
        awaits: names of secrets without which it doesn't start; this computer sends them over SSH once it answers.
        until: when they end at the latest, however late they are created; None if only `lifetime` counts. The end of
            other machines, which comes before, may take long and costs money.
    """

    machine_id: str
    offers: tuple[Offer, ...]
    lifetime: timedelta
    starts: bool = False
    ssh_from: str = ""
    others: tuple[str, ...] = ()
    rank: int = 0
    awaits: tuple[str, ...] = ()
    joins: tuple[str, ...] = ()
    until: datetime | None = None

    @property
    def machine_ids(self) -> tuple[str, ...]:
        """All machines, by rank."""
        return (self.machine_id, *self.others)


@dataclass(frozen=True, slots=True, kw_only=True)
class StageCode:
    """Upload the code and the command's configuration to the object store, for a machine that starts by itself.

    Attributes:
        gpus: how many the machine will have.
        done: the tasks that have succeeded on an earlier machine, and aren't started.
    """

    machine_id: str
    source: str
    files: int
    bytes: int
    gpus: int
    done: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StageData:
    """Upload a data folder to the object store, for a machine that starts by itself and downloads it from there."""

    machine_id: str
    mount: DataMount


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSecrets:
    """Store the job's secrets where only the run's machines can read them, for a machine that starts by itself.

    Attributes:
        names: of the variables; their values are read from this computer's environment.
        place: where they are stored, in the provider's words.
    """

    machine_id: str
    names: tuple[str, ...]
    place: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitMachine:
    """Wait until the machine has booted and its agent answers."""

    machine_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SendCode:
    """Bring the code on the machine to the state on the laptop."""

    machine_id: str
    source: str
    files: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SendData:
    """Bring a data folder to the machine.

    Attributes:
        delete: remove files on the machine that the laptop doesn't have.
    """

    machine_id: str
    mount: DataMount
    delete: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StopCommand:
    """Ask the command to checkpoint and exit, and wait until it has.

    Attributes:
        restarts: the command is started again afterwards, so followers of its log keep following.
        now: kill it instead, without a checkpoint.
        tasks: the names of the tasks to stop; empty for all.
        leaves_mode: another mode is started afterwards, in its place.
    """

    machine_id: str
    restarts: bool = False
    now: bool = False
    tasks: tuple[str, ...] = ()
    leaves_mode: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StartCommand:
    """Start the command under its supervisor; on a new machine it resumes from the newest checkpoint.

    Attributes:
        tasks: the names of the tasks to start; empty for all.
        done: the tasks that have succeeded on an earlier machine, and aren't started.
        mode: the run's mode, if it isn't its first one: such as `2-fast`, which is its folder in the results.
        continues: the mode begins from the newest checkpoint of the one before.
    """

    machine_id: str
    supervisor: SupervisorKind
    resumes: bool
    tasks: tuple[str, ...] = ()
    done: tuple[str, ...] = ()
    mode: str = ""
    continues: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowCommand:
    """Show the log until the command has ended."""

    machine_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchResults:
    """Copy the run's results to the laptop and verify the copy.

    Attributes:
        tasks: the names of the tasks whose results are copied, and nothing else; empty for everything.
        folders: the folders and files in the results that are copied, and nothing else, if it is one mode that is
            fetched.
        only: names and patterns of the files that are copied (core/protocol/choice.py); empty for all that the job's
            outputs want.
        without: machines of the run that don't answer; if the object store has nothing of one, it is left out.
    """

    machine_id: str
    destination: str
    tasks: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    only: tuple[str, ...] = ()
    without: tuple[str, ...] = ()


STILL_AT_WORK = "the command is still at work"
"""Detail of an intent: this copy of the results was made while the command was running, so it isn't the final one."""

LAST_UPLOAD = timedelta(seconds=45)
"""How long to wait for a machine's last upload, which `resume` needs, if nobody waits for its results."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DestroyMachine:
    """Destroy the machine, and wait until the provider confirms that it is gone.

    Attributes:
        leaves_results: wait only briefly for results that aren't in the object store yet, because nobody needs them.
        is_ending: it was ending already, and the run continues on another machine: nothing waits for its results, nor
            long for its end if its provider has taken it away.
    """

    machine_id: str
    leaves_results: bool = False
    is_ending: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtendDeadline:
    """Move the deadline of all of a run's machines, or of none: their timers, the guards outside, and the ledger.

    Attributes:
        machines: those that the run has; empty for a recovered run that has none now.
        run: the deadline of a recovered run itself; None for a run that isn't recovered.
        by: how much longer was asked for; None if the new deadline itself was given.
        worst_usd: the most that the run can cost until the new deadline.
    """

    run_id: str
    machines: tuple[MovedDeadline, ...] = ()
    run: MovedRun | None = None
    by: timedelta | None = None
    worst_usd: Decimal = Decimal(0)


Action = (
    StageCode
    | StageData
    | StageSecrets
    | CreateMachine
    | AwaitMachine
    | SendCode
    | SendData
    | StopCommand
    | StartCommand
    | FollowCommand
    | FetchResults
    | ExtendDeadline
    | DestroyMachine
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseRun:
    """Remove what the provider has created for a run besides machines, once the run has no machine left.

    No plan contains it: closing a run releases it.
    """

    run_id: str


Journaled = Action | ReleaseRun
"""Every action that changes the world, and therefore gets an intent in the ledger."""
