"""Draws the machines of a run that has several: as a table, and as data for scripts."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from orchestrator.cli.drawing.status_line import load_words
from orchestrator.cli.terminal.table import Table
from orchestrator.core.values.units import format_duration

if TYPE_CHECKING:
    from orchestrator.core.machine import Machine
    from orchestrator.core.protocol.report import Checkpoint, MachineReport
    from orchestrator.engine.observing.recorded import RunStatus

_SILENT = "no answer"


def node_table(status: RunStatus) -> Table | None:
    """Make a table with a row for each machine; None for a run with one machine."""
    if max(status.record.spec.job.num_nodes, len(status.machines)) < 2 or not status.machines:
        return None
    table = Table("node", "machine", "state", "command", "address", "checkpoint", "load", names=("machine",))
    for machine, report in _nodes(status):
        table.add_row(
            str(machine.rank),
            machine.id,
            str(machine.state),
            str(report.command.state) if report else _SILENT,
            machine.private_address or "-",
            _describe_checkpoint(report) or "-",
            (load_words(report.sample) if report else "") or "-",
        )
    return table


def nodes_as_data(status: RunStatus) -> list[dict[str, Any]]:
    """Return the machines that may be billing as data for JSON, by rank; `command` is null if one doesn't answer."""
    return [
        {
            "node": machine.rank,
            "machine": machine.id,
            "state": machine.state,
            "command": report.command if report else None,
            "checkpoint": _newest_checkpoint(report) if report else None,
            "sample": report.sample if report else None,
        }
        for machine, report in _nodes(status)
    ]


def _nodes(status: RunStatus) -> Iterator[tuple[Machine, MachineReport | None]]:
    reports = {report.machine: report for report in status.reports}
    for machine in sorted(status.machines, key=lambda each: each.rank):
        yield machine, reports.get(machine.id)


def _describe_checkpoint(report: MachineReport | None) -> str:
    newest = _newest_checkpoint(report) if report else None
    if report is None or newest is None:
        return ""
    return f"{newest.name}, {format_duration(timedelta(seconds=report.now - newest.written))} old"


def _newest_checkpoint(report: MachineReport) -> Checkpoint | None:
    """Return the newest checkpoint of all tasks on a machine."""
    found = [task.checkpoint for task in report.each_task.values() if task.checkpoint is not None]
    return max(found, key=lambda each: each.written, default=None)
