"""Lines that a launch draws, on a terminal of 80 columns."""

from __future__ import annotations

import io
from decimal import Decimal

import pytest
from rich.console import Console

from orchestrator.cli.drawing.progress import Watcher
from orchestrator.cli.drawing.status_line import status_line_of
from orchestrator.cli.terminal.console import print_folded
from orchestrator.core.actions import AwaitMachine, DestroyMachine
from orchestrator.core.job import Job, LaunchSpec
from orchestrator.core.plan import Plan
from orchestrator.core.protocol.report import Command, MachineReport, RunState
from orchestrator.core.task import Task
from orchestrator.engine.events import ActionEnded, LogLine, Remark

_SPINNER = 2


@pytest.mark.parametrize("loss", ["loss", "train_loss"])
def test_the_loss_stays_on_the_status_line_of_a_narrow_terminal(loss: str) -> None:
    """Costs, and metrics that come before it in the alphabet, don't push it out."""
    report = MachineReport(
        machine="digits-1121-k3f9-m1",
        run="digits-1121-k3f9",
        now=60.0,
        created=0.0,
        deadline_at=90_000.0,
        usd_per_hour="31.99",
        command=Command(state=RunState.RUNNING),
        progress={
            "epoch": 112,
            "epochs": 300,
            "step": 112_345,
            "steps": 300_000,
            "metrics": {"accuracy": 0.91, loss: 0.0421, "val_loss": 0.04},
        },
    )
    line = status_line_of(report, Decimal(1000))
    assert f"{loss} 0.0421" in line[: 80 - _SPINNER]
    assert "accuracy 0.91" in line


@pytest.mark.parametrize("text", ["  note: " + "words of a note " * 12, "Machine " + "is running: 1h left, " * 6])
def test_a_long_sentence_is_wrapped_and_indented(text: str) -> None:
    """Between words; in a pipe it stays on one line."""
    screen = io.StringIO()
    print_folded(Console(file=screen, force_terminal=True, width=80), text)
    first, *more = screen.getvalue().splitlines()
    assert more
    assert all(len(line) <= 80 for line in (first, *more))
    indent = len(first) - len(first.lstrip())
    assert all(line.startswith(" " * (indent + 2)) for line in more)
    pipe = io.StringIO()
    print_folded(Console(file=pipe, soft_wrap=True), text)
    assert len(pipe.getvalue().splitlines()) == 1


def test_a_remark_on_an_action_stays_below_it_on_a_narrow_terminal() -> None:
    """A path that has no room beside its sentence is indented as well, and not broken: it can be copied."""
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=80, highlight=False)
    spec = LaunchSpec(run_id="digits-1", provider="local", job=Job(name="digits"))
    with Watcher(console, spec, Plan(run_id="digits-1", actions=())) as see:
        see(Remark(text="kept until the next local launch: the folder that the command ran in, /home/me/ended/m1"))
    first, second = screen.getvalue().splitlines()
    assert first.startswith("  kept until")
    assert second == "    /home/me/ended/m1"


def test_lines_of_several_machines_say_which_one() -> None:
    """An action and a line of the log name their machine; the rest of a long line is indented."""
    screen = io.StringIO()
    spec = LaunchSpec(run_id="gang-1", provider="local", job=Job(name="gang", tasks=(Task(run="train"),), num_nodes=2))
    plan = Plan(run_id=spec.run_id, actions=())
    with Watcher(Console(file=screen, force_terminal=True, color_system=None, width=80), spec, plan) as watcher:
        watcher(ActionEnded(number=1, action=AwaitMachine(machine_id="gang-1-m2")))
        watcher(ActionEnded(number=2, action=DestroyMachine(machine_id="gang-1-m2"), note="gone, " * 15))
        watcher(LogLine(text="2026-11-24T00:05:20Z step 1", node=1))
    waited, destroyed, more, step = screen.getvalue().splitlines()
    assert waited.startswith("~ wait until it is ready: gang-1-m2  ")
    assert (destroyed.count("gang-1-m2"), more[:2]) == (1, "  ")
    assert step == "node 1 | 00:05:20 step 1"
