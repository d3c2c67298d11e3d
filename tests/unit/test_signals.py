"""A signal that comes while the bottom of the screen is being drawn waits until that is done."""

from __future__ import annotations

import io
import os
import signal
from collections.abc import Iterator

import pytest
from rich.console import Console
from rich.live import Live

from orchestrator.cli.drawing.progress import Watcher
from orchestrator.cli.tasks.selftest import _Screen
from orchestrator.cli.terminal.signals import EndedBySignalError, take_signals, waiting_signals
from orchestrator.core.actions import DestroyMachine
from orchestrator.core.job import Job, LaunchSpec
from orchestrator.core.plan import Plan
from orchestrator.engine.events import ActionBegan

SPEC = LaunchSpec(run_id="digits-1", provider="local", job=Job(name="digits"))
PLAN = Plan(run_id="digits-1", actions=())


@pytest.fixture(autouse=True)
def kedges_signals() -> Iterator[None]:
    """The signals as a command takes them, and as they were afterwards."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    take_signals()
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


class HalfDrawnConsole(Console):
    """A terminal whose reader presses Ctrl-C while a live display starts or stops."""

    def __init__(self, moment: str) -> None:
        super().__init__(file=io.StringIO(), force_terminal=True, width=80)
        self.moment = moment

    def set_live(self, live: Live) -> bool:
        if self.moment == "start":
            os.kill(os.getpid(), signal.SIGINT)
        return super().set_live(live)

    def clear_live(self) -> None:
        super().clear_live()
        if self.moment == "stop":
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize("moment", ["start", "stop"])
def test_ctrl_c_while_a_live_display_changes_is_no_mistake_of_kedges(moment: str) -> None:
    """It reads as Ctrl-C, and the cursor is shown again."""
    console = HalfDrawnConsole(moment)
    with pytest.raises(EndedBySignalError), Watcher(console, SPEC, PLAN) as see:
        see(ActionBegan(number=1, action=DestroyMachine(machine_id="digits-1-m1")))
    assert console.file.getvalue().rpartition("\x1b[?25")[2].startswith("h")  # type: ignore[attr-defined] # a StringIO


@pytest.mark.parametrize("moment", ["start", "stop"])
def test_ctrl_c_while_the_selftest_shows_a_check(moment: str) -> None:
    """The display can still be stopped, and the next one started."""
    console = HalfDrawnConsole(moment)
    screen = _Screen(console)

    def show() -> None:
        screen.began("creation")
        screen.rest()

    with pytest.raises(EndedBySignalError):
        show()
    screen.rest()
    console.moment = "never"
    _Screen(console).began("sweep")  # rich refuses a second display beside one that it takes for shown
    assert len(console._live_stack) == 1


def test_the_second_signal_waits_for_nothing() -> None:
    """A terminal that blocks keeps nobody who presses Ctrl-C again."""
    survived = []

    def press_twice() -> None:
        with waiting_signals():
            for press in ("first", "second"):
                os.kill(os.getpid(), signal.SIGINT)
                survived.append(press)

    with pytest.raises(EndedBySignalError):
        press_twice()
    assert survived == ["first"]
    with pytest.raises(EndedBySignalError):
        os.kill(os.getpid(), signal.SIGINT)
