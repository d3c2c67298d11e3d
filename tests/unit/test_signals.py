"""A signal that comes while the screen is being drawn waits until that is done; a closed terminal is such a signal."""

from __future__ import annotations

import errno
import io
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console
from rich.live import Live

from orchestrator.cli.drawing.progress import Watcher
from orchestrator.cli.tasks.selftest import _Screen
from orchestrator.cli.terminal.signals import EndedBySignalError, take_signals, waiting_signals
from orchestrator.cli.terminal.streams import CleanStream
from orchestrator.core.actions import DestroyMachine
from orchestrator.core.errors import NoCapacityError
from orchestrator.core.job import Job, LaunchSpec
from orchestrator.core.plan import Plan
from orchestrator.engine.events import ActionBegan, ActionEnded

ACTION = DestroyMachine(machine_id="digits-1-m1")
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
        see(ActionBegan(number=1, action=ACTION))
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


class ClosingTerminal(io.StringIO):
    """A terminal that is closed before one of the writes to it; the streams are let go of before the next one."""

    def __init__(self, survives: int) -> None:
        super().__init__()
        self.left = survives

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.left -= 1
        if self.left == -1:
            raise OSError(errno.EIO, "Input/output error")
        return len(text)


@pytest.mark.parametrize("survives", range(4))
def test_a_write_to_a_closed_terminal_is_its_signal(survives: int) -> None:
    """Whichever write it is: one that failed left rich's display half started, and read as a mistake of kedge's."""
    stream = CleanStream(ClosingTerminal(survives))
    console = Console(file=stream.raw, force_terminal=True, width=80)

    def draw() -> None:
        with Watcher(console, SPEC, PLAN) as see:
            see(ActionBegan(number=1, action=ACTION))
            see(ActionEnded(number=1, action=ACTION, note=""))

    with pytest.raises(EndedBySignalError) as ended:
        draw()
    assert ended.value.number == signal.SIGHUP


def test_a_file_that_fails_is_no_closed_terminal() -> None:
    """A disk that doesn't take the output is an error."""

    class Disk(ClosingTerminal):
        def isatty(self) -> bool:
            return False

    with pytest.raises(OSError, match="Input/output error"):
        CleanStream(Disk(0)).write("x")


AT_CLOSED = """
import select, sys
from invoke.collection import Collection
from invoke.tasks import task
from orchestrator.cli.program import KedgeProgram
from orchestrator.core.errors import NoCapacityError

@task
def look(_context):
    "Look."
    print("ready", flush=True)
    closed = select.poll()
    closed.register(1, 0)
    while not closed.poll():
        pass
    {body}

KedgeProgram(Collection(look)).run(["kedge", "look"])
"""
BEFORE_ITS_SIGNAL = {
    "print('x')": 128 + signal.SIGHUP,
    "print('x', file=sys.stderr)": 128 + signal.SIGHUP,
    "sys.stdout.buffer.write(b'x'); sys.stdout.buffer.flush()": 128 + signal.SIGHUP,
    "raise NoCapacityError('none')": NoCapacityError.exit_code,
    "raise ValueError('none')": 1,
}


@pytest.mark.parametrize("body", BEFORE_ITS_SIGNAL)
def test_a_closed_terminal_is_noticed_before_the_shell_passes_the_signal_on(tmp_path: Path, body: str) -> None:
    """What fails because of it ends as by the signal; another failure keeps its exit code, though nobody reads it."""
    master, ours = os.openpty()
    # The kernel sends SIGHUP to the shell, which this one keeps to itself.
    argv = ["sh", "-c", 'trap : HUP; "$@"', "sh", sys.executable, "-c", AT_CLOSED.format(body=body)]
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(argv, env=env, preexec_fn=lambda: os.login_tty(ours)) as shell:  # noqa: PLW1509 - no thread runs here
        os.close(ours)
        said = b""
        while b"ready\r\n" not in said:
            said += os.read(master, 4096)
        os.close(master)
        assert shell.wait(timeout=120) == BEFORE_ITS_SIGNAL[body]
