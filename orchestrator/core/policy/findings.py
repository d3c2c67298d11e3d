"""What was observed of a run, and what is wrong with it; `reaping` decides what to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from enum import StrEnum

from orchestrator.core.ledger import RunRecord, RunStage
from orchestrator.core.machine import Machine
from orchestrator.core.protocol.report import MachineReport
from orchestrator.core.sweep import Leftover


class Step(StrEnum):
    """What to do about a finding."""

    END = "end"
    """Destroy the machine, and wait until its provider confirms that it is gone."""
    RELEASE = "release"
    """Remove what the run has besides machines."""
    SETTLE = "settle"
    """Update the ledger to what the provider has."""
    LEAVE = "leave"
    """Do nothing; `why` gives the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that isn't as it should be.

    Attributes:
        what: its kind and name.
        age: None if unknown.
        usd_per_hour: its price.
        why: why it is to be removed, or why it is left alone.
    """

    what: str
    run_id: str
    own: bool
    provider: str
    region: str
    age: timedelta | None
    usd_per_hour: Decimal
    why: str
    step: Step
    bills: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What the ledger's intents say about a run's machines, as sets of their ids.

    Attributes:
        created: this computer was about to create them.
        used: somebody was about to start a command on them, they start it by themselves, or the user got them.
        ending: this computer was about to end them.
        last_was_end: the newest intent for a machine was to end it.
    """

    created: frozenset[str] = frozenset()
    used: frozenset[str] = frozenset()
    ending: frozenset[str] = frozenset()
    last_was_end: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSeen:
    """A run, as its provider and the ledger know it.

    Attributes:
        record: the ledger's entry; None if it has none.
        machines: those at the provider that aren't gone.
        recorded: the machines that the ledger believes to be alive.
        leftovers: what the run has besides machines.
        interrupted: actions that were begun and never settled.
        deadlines_at: of all its machines, present and past, as far as the ledger knows.
        busy: another command is acting on it.
        bills_when_off: its provider bills a powered-off machine like a running one.
        reports: by machine id; only of machines that can't end themselves, were asked, and have answered.
        revision: the ledger's revision of the run at the time of the observation.
    """

    run_id: str
    provider: str
    record: RunRecord | None = None
    machines: tuple[Machine, ...] = ()
    recorded: tuple[Machine, ...] = ()
    leftovers: tuple[Leftover, ...] = ()
    history: History = field(default_factory=History)
    interrupted: tuple[str, ...] = ()
    deadlines_at: tuple[datetime, ...] = ()
    busy: bool = False
    bills_when_off: bool = False
    reports: Mapping[str, MachineReport] = field(default_factory=dict)
    revision: int = 0

    @property
    def is_live(self) -> bool:
        """Tell whether the ledger has it, and it isn't closed."""
        return self.record is not None and self.record.stage is RunStage.LIVE


@dataclass(frozen=True, slots=True, kw_only=True)
class Reaping:
    """What to do about one run.

    Attributes:
        seen: the run.
        ends: machines to destroy.
        closes: the run is closed, and nothing of it may be left.
    """

    seen: RunSeen
    findings: tuple[Finding, ...]
    ends: tuple[Machine, ...] = ()
    closes: bool = False

    @property
    def acts(self) -> bool:
        """Tell whether there is something to do."""
        return any(finding.step is not Step.LEAVE for finding in self.findings)
