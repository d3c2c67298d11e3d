"""What the ledger records: runs, intents and machines; the SQLite adapter keeps them."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from orchestrator.core.cost import Rental
from orchestrator.core.job import LaunchSpec
from orchestrator.core.machine import Machine

if TYPE_CHECKING:
    from orchestrator.core.actions import Action


class IntentState(StrEnum):
    """What became of an intent."""

    OPEN = "open"
    """Written before the action; whoever finds it later must look at the world to know."""
    DONE = "done"
    FAILED = "failed"


class RunStage(StrEnum):
    """Where a run is in its life, as far as the ledger knows."""

    LIVE = "live"
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """Something that was about to be done.

    Attributes:
        kind: the action's class name.
        subject: what it acts on, a machine's id.
        payload: the whole action as JSON.
    """

    id: int
    run_id: str
    kind: str
    subject: str
    state: IntentState
    at: datetime
    detail: str = ""
    payload: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """One run in the ledger.

    Attributes:
        outcome: the command's last known state, such as `succeeded`; empty while unknown.
        ended_at: when its last machine was confirmed to be gone.
    """

    spec: LaunchSpec
    stage: RunStage
    outcome: str
    created_at: datetime
    ended_at: datetime | None

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self.spec.run_id


class Ledger(Protocol):
    """The local record. Every method is one transaction that is on disk when it returns."""

    def open_run(self, spec: LaunchSpec, at: datetime) -> None:
        """Record a run that begins, or the changed specification of one that goes on."""

    def end_run(self, run_id: str, at: datetime) -> None:
        """Record that nothing of the run is left at its provider; its open intents are closed with it."""

    def note_outcome(self, run_id: str, outcome: str, took: timedelta) -> None:
        """Record the command's state as it was last seen, and how long it has been at work."""

    def usual_duration(self, job: str, mode: str) -> timedelta | None:
        """Return the median of what the last successful runs of a job and mode took; None without any."""

    def runs(self, *, live_only: bool = False) -> tuple[RunRecord, ...]:
        """List runs, newest first."""

    def run(self, run_id: str) -> RunRecord | None:
        """Look a run up by its id."""

    def intend(self, run_id: str, action: Action, at: datetime) -> int:
        """Record what is about to be done, and return the intent's id."""

    def mark(self, run_id: str) -> int:
        """Return a number that grows whenever somebody acts on the run."""

    def settle(self, intent_id: int, state: IntentState, at: datetime, detail: str = "") -> None:
        """Record what became of an intent."""

    def intents(self, run_id: str) -> tuple[Intent, ...]:
        """List what was about to be done, oldest first."""

    def open_intents(self, run_id: str) -> tuple[Intent, ...]:
        """List the intents of which nobody knows the outcome."""

    def put_machine(self, machine: Machine) -> None:
        """Record a machine as it is now; its meter runs from its creation."""

    def end_machine(self, machine_id: str, at: datetime) -> None:
        """Record that the provider confirmed a machine to be gone; its meter stops."""

    def machines(self, run_id: str | None = None, *, live_only: bool = False) -> tuple[Machine, ...]:
        """List machines, oldest first."""

    def lock(self, run_id: str, *, wait: timedelta = timedelta(0)) -> AbstractContextManager[None]:
        """Keep other commands from acting on the run; the operating system lets go when a process dies.

        Raises:
            ConflictError: another command holds it.
        """

    def rentals(self, run_id: str | None = None) -> tuple[Rental, ...]:
        """List what has been on the meter, oldest first."""
