"""What a run looks like from the laptop alone: the ledger's half of `status`, and all that `status --ledger` loads."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING

from orchestrator.core.cost import spent_usd
from orchestrator.core.ledger import Ledger, RunRecord, RunStage
from orchestrator.core.machine import Machine

if TYPE_CHECKING:
    from orchestrator.core.report import MachineReport


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """One run, now.

    Attributes:
        machines: those that may be billing.
        report: what the machine says of itself; None where none answers, or none was asked.
        findings: where ledger, provider and machine differ, one line each.
    """

    record: RunRecord
    now: datetime
    machines: tuple[Machine, ...]
    spent_usd: Decimal
    report: MachineReport | None = None
    findings: tuple[str, ...] = ()

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
    )
