"""What the engine tells whoever watches it; the command line draws it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from orchestrator.core.actions import Action
from orchestrator.core.report import MachineReport


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionBegan:
    """An action of a plan begins; its intent is in the ledger."""

    number: int
    action: Action


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionProgressed:
    """Bytes were moved; total is 0 where nobody knows it."""

    done: int
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionEnded:
    """An action is done."""

    number: int
    action: Action
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    """The command wrote a line."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSeen:
    """The machine said how it is."""

    report: MachineReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """Something that the user should know."""

    text: str


Event = ActionBegan | ActionProgressed | ActionEnded | LogLine | ReportSeen | Remark
Events = Callable[[Event], None]
