"""A run's status from the ledger alone, without contacting anything: all that `status --ledger` loads."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING

import msgspec

from orchestrator.core.actions import STILL_AT_WORK, DestroyMachine, FetchResults
from orchestrator.core.ledger import Intent, IntentState, Ledger, RunRecord, RunStage
from orchestrator.core.machine import Machine
from orchestrator.core.protocol.report import RunState
from orchestrator.core.values.cost import spent_usd

if TYPE_CHECKING:
    from orchestrator.core.protocol.report import MachineReport


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """A run's current status.

    Attributes:
        machines: those that may be billing.
        report: the machine's own; None if none answers, or none was asked.
        findings: differences between ledger, provider and machine, and other problems, one line each.
        results_wait: it has succeeded, and nobody has fetched its results yet.
    """

    record: RunRecord
    now: datetime
    machines: tuple[Machine, ...]
    spent_usd: Decimal
    report: MachineReport | None = None
    findings: tuple[str, ...] = ()
    results_wait: bool = False

    @property
    def state(self) -> str:
        """The command's state if known, else the state of the run in the ledger."""
        if self.report is not None:
            return str(self.report.command.state)
        if self.record.stage is RunStage.ENDED:
            return self.record.outcome or "ended"
        return self.record.outcome if self.machines and self.record.outcome else "no machine"


def recorded_status(ledger: Ledger, record: RunRecord, now: datetime) -> RunStatus:
    """Return the status according to the ledger; nothing is contacted."""
    return RunStatus(
        record=record,
        now=now,
        machines=ledger.machines(record.run_id, live_only=True),
        spent_usd=spent_usd(ledger.rentals(record.run_id), now),
        results_wait=results_wait(ledger, record),
    )


def results_wait(ledger: Ledger, record: RunRecord) -> bool:
    """Tell whether a run has succeeded, and its results were neither fetched since then nor given up."""
    if record.outcome != RunState.SUCCEEDED or not record.spec.job.run:
        return False
    done = (intent for intent in ledger.intents(record.run_id) if intent.state is IntentState.DONE)
    return not any(_settles_results(intent) for intent in done)


def _settles_results(intent: Intent) -> bool:
    if intent.kind == FetchResults.__name__:
        return not intent.detail.endswith(STILL_AT_WORK)
    return (
        intent.kind == DestroyMachine.__name__
        and msgspec.json.decode(intent.payload, type=DestroyMachine).leaves_results
    )
