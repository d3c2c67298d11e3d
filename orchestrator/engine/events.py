"""Events that the engine reports to its caller; the command line draws them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from orchestrator.core.actions import Action
from orchestrator.core.protocol.report import MachineReport


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionBegan:
    """An action of a plan begins; its intent is recorded next."""

    number: int
    action: Action


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionProgressed:
    """Bytes were transferred; total is 0 if unknown."""

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
    """A task wrote a line to its log; one without a name is the machine's own, or of a task without a name.

    Attributes:
        node: the machine's rank.
    """

    text: str
    task: str = ""
    node: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSeen:
    """A report of the machine arrived."""

    report: MachineReport


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """A remark for the user."""

    text: str


Event = ActionBegan | ActionProgressed | ActionEnded | LogLine | ReportSeen | Remark
Events = Callable[[Event], None]
