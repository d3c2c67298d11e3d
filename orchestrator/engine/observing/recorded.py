"""A run's status from the ledger alone, without contacting anything: all that `status --ledger` loads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING

from orchestrator.core.actions import STILL_AT_WORK, DestroyMachine, FetchResults
from orchestrator.core.job import EarlierMode
from orchestrator.core.ledger import Intent, IntentState, Ledger, RunRecord, RunStage
from orchestrator.core.machine import Machine
from orchestrator.core.modes import list_modes
from orchestrator.core.protocol.report import RunState
from orchestrator.core.values.cost import spent_usd
from orchestrator.core.values.structs import decode_json

if TYPE_CHECKING:
    from orchestrator.core.protocol.report import Command, MachineReport, TaskReport


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """A run's current status.

    Attributes:
        machines: those that may be billing.
        report: the head's own; None if it doesn't answer, or wasn't asked.
        reports: of all machines that answer.
        findings: differences between ledger, provider and machine, and other problems, one line each.
        results_wait: it has succeeded, and nobody has fetched its results yet.
        uploaded: the states of named tasks that a machine uploaded, if none answers.
        stalled: for how long tasks have been silent that shouldn't be, by their names.
        modes: those that the run has had, the present one last.
    """

    record: RunRecord
    now: datetime
    machines: tuple[Machine, ...]
    spent_usd: Decimal
    report: MachineReport | None = None
    reports: tuple[MachineReport, ...] = ()
    findings: tuple[str, ...] = ()
    results_wait: bool = False
    uploaded: Mapping[str, Command] = field(default_factory=dict)
    stalled: Mapping[str, timedelta] = field(default_factory=dict)
    modes: tuple[EarlierMode, ...] = ()

    @property
    def task_reports(self) -> Mapping[str, TaskReport]:
        """The reports of the tasks by their names; empty if the head doesn't answer.

        Their states are the head's; progress and checkpoints come from the machine that wrote last.
        """
        if self.report is None:
            return {}
        # Imported when needed: `status --ledger` has no reports.
        from orchestrator.core.protocol.newest import combine_tasks  # noqa: PLC0415

        others = (report for report in self.reports if report.machine != self.report.machine)
        return combine_tasks((self.report, *others))

    @property
    def commands(self) -> Mapping[str, Command]:
        """The states of the tasks by their names, as far as they are known."""
        return {name: task.command for name, task in self.task_reports.items()} or self.uploaded

    @property
    def state(self) -> str:
        """The command's state if known, else the state of the run in the ledger."""
        if self.report is not None:
            return str(self.report.command.state)
        if self.record.stage is RunStage.ENDED:
            return self.record.outcome or "ended"
        return self.record.outcome if self.machines and self.record.outcome else "no machine"


def recorded_status(ledger: Ledger, record: RunRecord, now: datetime, *, state: str = "") -> RunStatus:
    """Return the status according to the ledger; nothing is contacted.

    Args:
        ledger: the ledger.
        record: the run.
        now: the present time.
        state: of its command, if a machine has told it; empty for what the ledger knows.
    """
    rentals = ledger.rentals(record.run_id)
    return RunStatus(
        record=record,
        now=now,
        machines=ledger.machines(record.run_id, live_only=True),
        spent_usd=spent_usd(rentals, now),
        results_wait=results_wait(ledger, record),
        modes=list_modes(record.spec, state or record.outcome, rentals, now),
    )


def results_wait(ledger: Ledger, record: RunRecord) -> bool:
    """Tell whether a run has succeeded, and its results were neither fetched since then nor given up."""
    if record.outcome != RunState.SUCCEEDED or not record.spec.job.tasks:
        return False
    done = (intent for intent in ledger.intents(record.run_id) if intent.state is IntentState.DONE)
    return not any(_settles_results(intent) for intent in done)


def _settles_results(intent: Intent) -> bool:
    if intent.kind == FetchResults.__name__:
        fetched = decode_json(intent.payload, FetchResults)
        is_whole = not (fetched.tasks or fetched.folders)
        return is_whole and not intent.detail.endswith(STILL_AT_WORK)
    return intent.kind == DestroyMachine.__name__ and decode_json(intent.payload, DestroyMachine).leaves_results
