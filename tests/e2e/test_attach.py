"""The command's own terminal, shown on a user's terminal of 80 columns."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.e2e import runs
from tests.e2e.runs import JOB
from tests.support.laptop import Laptop
from tests.support.waiting import wait_until


class Terminal:
    """A terminal in which a command runs: a tmux of the test's own."""

    def __init__(self, laptop: Laptop, name: str) -> None:
        self._tmux = ["tmux", "-f", "/dev/null", "-L", f"kedge-test-{os.getpid()}-{name}"]
        shell = ["-x", "80", "-y", "24", "-c", str(laptop.home), shlex.join([*laptop.program, "attach"])]
        self._sent = laptop.home.parent / "sent"
        # The text that the program leaves on the screen stays.
        keep = [";", "set-option", "-g", "remain-on-exit", "on", ";", "pipe-pane", f"cat >{self._sent}"]
        subprocess.run([*self._tmux, "new-session", "-d", *shell, *keep], check=True, env=laptop.env)

    def text(self) -> str:
        """Return the text on the screen."""
        shown = subprocess.run([*self._tmux, "capture-pane", "-p"], capture_output=True, text=True, check=False).stdout
        return " ".join(shown.split())

    def wait_for(self, text: str) -> None:
        """Wait until this text is on the screen."""
        wait_until(lambda: text in self.text())

    def sent(self) -> bytes:
        """Return everything that was sent to it."""
        return self._sent.read_bytes()

    def press(self, *keys: str) -> None:
        """Press keys."""
        subprocess.run([*self._tmux, "send-keys", *keys], check=True)

    def close(self) -> None:
        """End it."""
        subprocess.run([*self._tmux, "kill-server"], check=False)


@contextmanager
def attached(laptop: Laptop, supervisor: str) -> Iterator[Terminal]:
    """A run, and a terminal that is attached to it."""
    laptop.write_job(JOB % supervisor)
    laptop.json("launch", "--yes", "--detach")
    terminal = Terminal(laptop, supervisor)
    try:
        wait_until(lambda: "step" in terminal.text())
        yield terminal
    finally:
        terminal.close()
    laptop.kedge("teardown", "--yes", "--no-fetch")
    assert laptop.processes() == []


def state(laptop: Laptop) -> str:
    """Return the command's state."""
    return str(laptop.json("status")[0]["state"])


@pytest.mark.parametrize(("key", "spoken"), [("C-c", "Ctrl-C"), ("C-z", "Ctrl-Z"), ("C-\\", "Ctrl-\\")])
def test_a_key_that_would_end_the_run_asks_first_in_tmux(laptop: Laptop, key: str, spoken: str) -> None:
    """The keys for leaving are on the screen; Ctrl-C asks first, and only a yes sends it."""
    with attached(laptop, "tmux") as terminal:
        wait_until(lambda: "Ctrl-b d leaves, the run goes on" in terminal.text())
        terminal.press(key)
        wait_until(lambda: f"Send {spoken} to the command? That stops the run. (y/n)" in terminal.text())
        terminal.press("n")
        wait_until(lambda: "Send Ctrl" not in terminal.text())
        assert state(laptop) == "running"
        if key == "C-c":
            terminal.press(key)
            wait_until(lambda: "(y/n)" in terminal.text())
            terminal.press("y")
            wait_until(lambda: runs.state(laptop) == "stopped")
        else:
            terminal.press("C-b", "d")
            wait_until(lambda: "detached" in terminal.text())
            says = b"Ctrl-b d leaves, and the run goes on; Ctrl-C asks before it stops the run"
            # tmux sends it to the process that records it, and that may be late.
            wait_until(lambda: says in terminal.sent())
            assert state(laptop) == "running"


def test_a_key_that_would_end_the_run_takes_a_second_one_in_screen(laptop: Laptop) -> None:
    """Screen can't ask: it shows which keys send the one that was pressed."""
    with attached(laptop, "screen") as terminal:
        wait_until(lambda: "Ctrl-a d leaves, the run goes on" in terminal.text())
        for key, does in {"C-c": "stop", "C-z": "pause", "C-\\": "kill"}.items():
            terminal.press(key)
            terminal.wait_for(f"would {does} the run")
        assert state(laptop) == "running"
        terminal.press("C-a", "C")
        wait_until(lambda: runs.state(laptop) == "stopped")
