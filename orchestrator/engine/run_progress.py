"""How far a plan has been executed, and what is known of its run."""

from __future__ import annotations

from dataclasses import dataclass, field

from orchestrator.core.protocol.report import Command, MachineReport


@dataclass(slots=True)
class RunProgress:
    """How far a plan has been executed.

    Attributes:
        command: the last known state of all tasks together.
        tasks: the last known states of the tasks with names.
        finished: every action was performed.
    """

    command: Command = field(default_factory=Command)
    tasks: dict[str, Command] = field(default_factory=dict)
    finished: bool = False

    def see(self, report: MachineReport) -> None:
        """Take the states from a machine's report."""
        self.command = report.command
        self.see_tasks(report)

    def see_tasks(self, report: MachineReport) -> None:
        """Take the states of the tasks with names."""
        self.tasks = {name: task.command for name, task in report.tasks.items()}
