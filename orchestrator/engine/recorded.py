"""What a run looks like from the laptop alone: the ledger's half of `status`, and all that `status --ledger` loads."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING

import msgspec

from orchestrator.core.actions import STILL_AT_WORK, DestroyMachine, FetchResults
from orchestrator.core.cost import spent_usd
from orchestrator.core.ledger import Intent, IntentState, Ledger, RunRecord, RunStage
from orchestrator.core.machine import Machine
from orchestrator.core.report import RunState

if TYPE_CHECKING:
    from orchestrator.core.report import MachineReport


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """One run, now.

    Attributes:
        machines: those that may be billing.
        report: what the machine says of itself; None where none answers, or none was asked.
        findings: where ledger, provider and machine differ, one line each.
        results_wait: it has succeeded, and nobody has brought its results home yet.
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
        """The command's state where it is known, else what the ledger knows of the run."""
        if self.report is not None:
            return str(self.report.command.state)
        if self.record.stage is RunStage.ENDED:
            return self.record.outcome or "ended"
        return self.record.outcome if self.machines and self.record.outcome else "no machine"


def recorded_status(ledger: Ledger, record: RunRecord, now: datetime) -> RunStatus:
    """Tell what the ledger alone knows; nothing is contacted."""
    return RunStatus(
        record=record,
        now=now,
        machines=ledger.machines(record.run_id, live_only=True),
        spent_usd=spent_usd(ledger.rentals(record.run_id), now),
        results_wait=results_wait(ledger, record),
    )


def results_wait(ledger: Ledger, record: RunRecord) -> bool:
    """Tell whether a run has succeeded, and its results were neither brought home since, nor given up."""
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
