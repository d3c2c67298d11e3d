"""A closed terminal and SIGTERM end a command as Ctrl-C does; a closed pipe ends it quietly."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from orchestrator.core.ledger import RunStage
from tests.e2e.runs import JOB as UNTIL_STOPPED
from tests.support.laptop import Laptop
from tests.support.waiting import wait_until

JOB = UNTIL_STOPPED % "nohup"


def _sit_at(terminal: int) -> None:
    """Attach this process to a terminal; tests under nohup inherit an ignored SIGHUP, which this resets."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    os.login_tty(terminal)


class Terminal:
    """A terminal in which one command runs."""

    def __init__(self, laptop: Laptop, *words: str) -> None:
        self._master, ours = os.openpty()
        self._unread = ""
        self.process = subprocess.Popen(
            [*laptop.program, *words],
            cwd=laptop.home,
            env=laptop.env,
            text=True,
            preexec_fn=lambda: _sit_at(ours),  # noqa: PLW1509 - no thread runs here
        )
        laptop.started.append(self.process)
        os.close(ours)

    def read_to(self, words: str) -> None:
        """Read the command's output up to this text; what has come after it is for the next call."""
        while words not in self._unread:
            self._unread += os.read(self._master, 4096).decode(errors="replace")
        self._unread = self._unread.partition(words)[2]

    def await_question(self) -> None:
        """Wait until the command reads its answer: `input()` misses a signal that comes just before."""
        now = Path(f"/proc/{self.process.pid}/syscall")
        wait_until(lambda: now.read_text().split()[:2] in (["0", "0x0"], ["63", "0x0"]))  # read, on x86 and ARM

    def close(self) -> None:
        """Close it, as a window is closed."""
        os.close(self._master)

    def await_departure(self) -> None:
        """Wait until the command has noticed that it is closed, or has ended."""
        output = Path(f"/proc/{self.process.pid}/fd/1")
        wait_until(lambda: self.process.poll() is not None or output.readlink() == Path(os.devnull))

    def wait(self) -> int:
        """Wait for the command's exit code."""
        return self.process.wait(timeout=240)


def left_behind(laptop: Laptop) -> list[object]:
    """List the remains of all runs: processes and folders of machines, runs that aren't over."""
    return [
        *laptop.processes(),
        *(laptop.state / "machines").iterdir(),
        *(run for run in laptop.ledger().runs() if run.stage is not RunStage.ENDED),
    ]


def test_a_selftest_whose_terminal_is_closed_leaves_nothing(laptop: Laptop) -> None:
    """The machine is ended and the account swept, though nobody reads it; the report says where it stopped."""
    laptop.extra_env["KEDGE_SELFTEST_SECONDS"] = "2"
    terminal = Terminal(laptop, "selftest", "--yes")
    terminal.read_to("ok  creation")
    terminal.close()
    terminal.await_departure()
    terminal.process.send_signal(signal.SIGHUP)  # a shell passes it on
    assert terminal.wait() == 128 + signal.SIGHUP
    checks = {line["check"]: line for line in json.loads((laptop.home / "kedge-selftest.json").read_text())["checks"]}
    assert checks["sweep"]["found"] == "nothing of it is left"
    assert left_behind(laptop) == []


def test_sigterm_ends_a_selftest_once(laptop: Laptop) -> None:
    """A second one, such as a logout's SIGHUP, doesn't keep the machine."""
    laptop.extra_env["KEDGE_SELFTEST_SECONDS"] = "2"
    terminal = Terminal(laptop, "selftest", "--yes")
    terminal.read_to("ok  creation")
    terminal.process.send_signal(signal.SIGTERM)
    terminal.read_to("Ending the machine")
    terminal.process.send_signal(signal.SIGTERM)
    terminal.read_to("Report:")
    assert terminal.wait() == 128 + signal.SIGTERM
    assert left_behind(laptop) == []


@pytest.mark.parametrize("after", ["-m1 (local)", "step 1 of"])
def test_the_next_command_finds_a_launch_whose_terminal_was_closed(laptop: Laptop, after: str) -> None:
    """Neither the run nor its machine is lost: `resume` continues them, `teardown` ends them."""
    laptop.write_job(JOB)
    terminal = Terminal(laptop, "launch", "--yes")
    terminal.read_to(after)
    terminal.close()
    assert terminal.wait() == 128 + signal.SIGHUP
    (run,) = laptop.ledger().runs(live_only=True)
    laptop.kedge("resume", "--yes", "--detach")
    assert laptop.json("status")[0]["run"] == run.run_id
    laptop.kedge("teardown", "--yes", "--no-fetch")
    assert left_behind(laptop) == []


def test_ctrl_c_at_a_question_starts_a_new_line(laptop: Laptop) -> None:
    """The next message doesn't start on the question's line."""
    laptop.write_job(JOB)
    terminal = Terminal(laptop, "launch")
    terminal.read_to("Go ahead? [y/N] ")
    terminal.await_question()
    terminal.process.send_signal(signal.SIGINT)
    terminal.read_to("\r\nRun ")
    assert terminal.wait() == 128 + signal.SIGINT
    assert laptop.json("status") == []


def test_a_launch_under_nohup_does_not_wait_for_an_answer(laptop: Laptop) -> None:
    """There is nobody to give one: it is refused at once, says what to add, and nothing was created."""
    laptop.write_job(JOB)
    laptop.program[:0] = ["nohup"]
    terminal = Terminal(laptop, "launch")
    assert terminal.wait() == 2
    said = (laptop.home / "nohup.out").read_text()
    assert "there is no terminal to ask on" in said
    assert "--yes" in said
    assert not list((laptop.state / "machines").glob("*"))


def test_a_launch_under_nohup_outlives_its_terminal(laptop: Laptop) -> None:
    """It follows the run to its end, and ends the machine."""
    laptop.write_job(JOB.replace("100000", "3"))
    laptop.program[:0] = ["nohup"]
    terminal = Terminal(laptop, "launch", "--yes")
    wait_until(lambda: (laptop.home / "nohup.out").exists() and "create" in (laptop.home / "nohup.out").read_text())
    terminal.close()
    assert terminal.wait() == 0
    assert left_behind(laptop) == []


def test_a_closed_pipe_ends_a_command_quietly(laptop: Laptop) -> None:
    """As in `kedge jobs | true`: output that is still in a buffer is dropped."""
    laptop.extra_env["PYTHONUNBUFFERED"] = ""
    jobs = laptop.start("jobs")
    assert jobs.stdout is not None
    assert jobs.stderr is not None
    jobs.stdout.close()
    assert jobs.stderr.read() == ""
    assert jobs.wait() == 0
