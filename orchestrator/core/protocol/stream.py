"""Parses the stream of a followed machine: lines of logs, and reports.

The agent writes the same names in orchestrator/agent/base/wire.py; tests/contract/test_wire.py compares them.
"""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.core.protocol.decoding import Size, TaskName, decode
from orchestrator.core.protocol.report import MachineReport


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowEvent:
    """One line of the output of `kedge-agent follow`: a piece of a log, or a report.

    Attributes:
        offset: how many bytes of that log were sent, this line included; where to continue after a broken connection.
        line: one line of the log without its end; None if this is a report.
        task: the task whose log it is; empty for the machine's own log, which is also that of a task without a name.
    """

    offset: Size
    line: str | None = None
    report: MachineReport | None = None
    task: TaskName = ""


def parse_follow_event(raw: bytes) -> FollowEvent:
    """Parse one line of the follow stream.

    Raises:
        NonsenseError: it isn't one.
    """
    return decode(raw, FollowEvent, what="its log's stream")
