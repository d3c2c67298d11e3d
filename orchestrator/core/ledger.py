"""The ledger's records (runs, intents, machines) and its port; the SQLite adapter stores them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from orchestrator.core.job import Job, LaunchSpec
from orchestrator.core.machine import Machine
from orchestrator.core.values.cost import Rental

if TYPE_CHECKING:
    from orchestrator.core.actions import Journaled

LOOK_WAIT = timedelta(seconds=5)
"""How long to wait for a lock held by a command that only looks, such as `status`, which reconciles the ledger."""


class IntentState(StrEnum):
    """What is known about an intent's outcome."""

    OPEN = "open"
    """Recorded before the action; if it stays open, only a look at the world tells what happened."""
    DONE = "done"
    FAILED = "failed"


class RunStage(StrEnum):
    """Where a run is in its life, as far as the ledger knows."""

    LIVE = "live"
    ENDED = "ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """An action that was about to be performed.

    Attributes:
        kind: the action's class name.
        subject: what it acts on: the id of a machine or of a run.
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
        outcome: the command's last known state, such as `succeeded`; empty if unknown.
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
        """Record a new run, or the changed specification of a live one."""

    def end_run(self, run_id: str, at: datetime) -> None:
        """Record that nothing of the run is left at its provider, and close its open intents."""

    def note_outcome(self, run_id: str, outcome: str, took: timedelta) -> None:
        """Record the command's last known state, and how long it has been running."""

    def usual_durations(self, job: Job) -> Mapping[str, timedelta]:
        """Return what the last successful runs of a job in its mode took, by the type of machine: the median.

        Only those with the same arguments of the mode, and as many machines.
        """

    def runs(self, *, live_only: bool = False) -> tuple[RunRecord, ...]:
        """List runs, newest first."""

    def run(self, run_id: str) -> RunRecord | None:
        """Look a run up by its id."""

    def intend(self, run_id: str, action: Journaled, at: datetime) -> int:
        """Record an action before it is performed, and return the intent's id."""

    def revision(self, run_id: str) -> int:
        """Return a number that grows with each intent of the run."""

    def close_intent(self, intent_id: int, state: IntentState, at: datetime, detail: str = "") -> None:
        """Record the outcome of an intent."""

    def intents(self, run_id: str) -> tuple[Intent, ...]:
        """List the run's intents, oldest first."""

    def open_intents(self, run_id: str) -> tuple[Intent, ...]:
        """List the intents whose outcome is unknown."""

    def put_machine(self, machine: Machine) -> None:
        """Record a machine's current state; its bill starts at its creation."""

    def record_machine_end(self, machine_id: str, at: datetime) -> None:
        """Record that the provider confirmed that a machine is gone; its bill stops."""

    def machines(self, run_id: str | None = None, *, live_only: bool = False) -> tuple[Machine, ...]:
        """List machines, oldest first."""

    def lock(self, run_id: str, *, wait: timedelta = timedelta(0)) -> AbstractContextManager[None]:
        """Keep other commands from acting on the run; the operating system releases the lock when a process dies.

        Raises:
            ConflictError: another command holds it.
        """

    def rentals(self, run_id: str | None = None) -> tuple[Rental, ...]:
        """List the periods for which machines were billed, oldest first."""
