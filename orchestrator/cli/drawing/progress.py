"""Draws what the engine does: actions, transferred bytes, the command's log, and a status line."""

from __future__ import annotations

import re
import signal
import time
from types import FrameType, TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from orchestrator.cli.drawing.log_lines import Labels
from orchestrator.cli.drawing.plans import print_signed
from orchestrator.cli.drawing.status_line import status_line_of
from orchestrator.cli.terminal.console import print_folded
from orchestrator.cli.terminal.signals import end, waiting_signals
from orchestrator.core.action_words import sign, title
from orchestrator.core.actions import Action, FetchResults, FollowCommand
from orchestrator.core.job import LaunchSpec
from orchestrator.core.plan import Plan
from orchestrator.core.protocol.report import MachineReport
from orchestrator.core.values.printable import clean_coloured, clean_line
from orchestrator.engine.events import (
    ActionBegan,
    ActionEnded,
    ActionProgressed,
    Event,
    LogLine,
    Remark,
    ReportSeen,
)

_LABEL = TextColumn("{task.description}", markup=False)
_TIMESTAMP = re.compile(r"^\d{4}-\d\d-\d\dT(\d\d:\d\d:\d\d)Z")
"""The timestamp of a log line; only the time of day is shown, because whoever watches knows the date."""

_LEAVE = "press Ctrl-C again to leave the log; the run goes on without you"


class Watcher:
    """Receives the engine's events, and draws them: with a live line on a terminal, as plain lines elsewhere."""

    def __init__(self, console: Console, spec: LaunchSpec, plan: Plan) -> None:
        self._console = console
        self._spec = spec
        self._plan = plan
        self._labels = Labels([task.name for task in spec.job.tasks], range(spec.job.num_nodes))
        self._began = 0.0
        self._open: list[Action] = []
        self._wait = Progress(SpinnerColumn(), _LABEL, TimeElapsedColumn(), console=console, transient=True)
        self._bar = Progress(
            _LABEL, BarColumn(24), DownloadColumn(), TimeElapsedColumn(), console=console, transient=True
        )
        self._line = Progress(SpinnerColumn(), _LABEL, console=console, transient=True)
        self._live: Progress | None = None
        self._interrupt = _ConfirmedInterrupt(console)

    def __enter__(self) -> Watcher:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._show(None, "")
        self._interrupt.disarm()

    def __call__(self, event: Event) -> None:
        """Draw one event."""
        match event:
            case ActionBegan(action=action):
                self._begin(action)
            case ActionProgressed(done=done, total=total):
                self._move(done, total)
            case ActionEnded(action=action, note=note):
                self._end(action, note)
            case LogLine(text=text, task=task, node=node):
                line = Text.from_ansi(clean_coloured(_TIMESTAMP.sub(r"\1", text)))
                label = (self._labels.label(task, node), self._labels.colour(task, node))
                self._console.print(Text.assemble(label, line))
            case ReportSeen(report=report):
                self._stand(report)
            case Remark(text=text):
                print_folded(self._console, f"  {text}")

    def _begin(self, action: Action) -> None:
        self._began = time.monotonic()
        if isinstance(action, FollowCommand):
            self._interrupt.arm()
            self._show(self._line, "")
        else:
            self._open.append(action)
            more = f", and {len(self._open) - 1} more at the same time" if len(self._open) > 1 else ""
            self._show(self._wait, title(self._open[0]) + more)

    def _move(self, done: int, total: int) -> None:
        """Show a bar, since bytes are being transferred."""
        if self._live is self._wait:
            self._show(self._bar, str(self._wait.tasks[0].description))
        for task in self._bar.task_ids:
            self._bar.update(task, completed=done, total=total or None)

    def _end(self, action: Action, note: str) -> None:
        self._interrupt.disarm()
        self._open.clear()
        self._show(None, "")
        took = time.monotonic() - self._began
        said = f" ({clean_line(note)})" if note else ""
        print_signed(self._console, sign(action), f"{self._title(action)}{said}  {took:.1f} s")

    def _title(self, action: Action) -> str:
        """Describe the action in a few words; of several machines, with the one that it is about."""
        text, machine_id = title(action), getattr(action, "machine_id", "")
        names = self._spec.job.num_nodes > 1 and machine_id and not isinstance(action, FollowCommand | FetchResults)
        return f"{text}: {machine_id}" if names and machine_id not in text else text

    def _stand(self, report: MachineReport) -> None:
        for task in self._line.task_ids:
            self._line.update(
                task, description=status_line_of(report, self._spec.job.budget_usd, self._spec.job.num_nodes)
            )

    def _show(self, live: Progress | None, description: str) -> None:
        """Replace the live line at the bottom."""
        with waiting_signals():
            if self._live is not None:
                self._live.stop()
                for task in self._live.task_ids:
                    self._live.remove_task(task)
            self._live = live if self._console.is_terminal else None
            if self._live is not None:
                self._live.add_task(description, total=None)
                self._live.start()


class _ConfirmedInterrupt:
    """While a log is followed: the first Ctrl-C asks, the second one leaves."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._before: Any = None
        self._asked = False

    def arm(self) -> None:
        self._asked = False
        self._before = signal.signal(signal.SIGINT, self._on_interrupt)

    def disarm(self) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, self._before)
            self._before = None

    def _on_interrupt(self, number: int, frame: FrameType | None) -> None:
        if self._asked:
            end(number, frame)
        self._asked = True
        self._console.print(_LEAVE)
