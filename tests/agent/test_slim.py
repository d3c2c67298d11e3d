"""A runner gives up most of its memory while its command runs, and goes on as if it hadn't."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import orchestrator
from tests.agent.box import Box, wait_for

MakeBox = Callable[..., Box]

_PARENT = Path(orchestrator.__file__).parent
HEAVY = {"re", "pathlib", "enum", "json", "subprocess", "contextlib", "threading", "typing", "signal", "functools"}
HALVES = """
printf 'one half, '
until [ -e "$KEDGE_OUTPUT_DIR/go" ]; do sleep 0.05; done
echo 'the other half'
seq 5000
[ -e "$KEDGE_OUTPUT_DIR/again" ] || { touch "$KEDGE_OUTPUT_DIR/again"; exit 3; }
"""


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


def await_slim(box: Box) -> int:
    """Wait until the runner is slim, and return its process id."""
    return int(wait_for(lambda: pid if (pid := box.note("state")["runner"]) and is_slim(pid) else 0))


def is_slim(pid: int) -> bool:
    return ".waiting.slim" in command_line(pid)


def anonymous_kib(pid: int) -> int:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Anonymous:"))


def test_a_waiting_runner_imports_nothing_that_takes_memory() -> None:
    """With the modules of a whole runner it would take four times as much."""
    code = f"import sys; sys.path.insert(0, {str(_PARENT)!r}); import agent.waiting.slim; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-IS", "-c", code], capture_output=True, text=True, check=True)
    assert HEAVY & set(done.stdout.split()) == set()


def test_a_slim_runner_is_the_same_process_and_loses_no_output(box: Box) -> None:
    """It keeps its id, its lock and the begin of a line; the exit code is kept, and the next attempt is made."""
    box.start(HALVES, restarts=1, restart_after=0.1)
    runner = await_slim(box)
    assert box.command()["state"] == "running"
    assert command_line(runner).endswith(f"{box.launcher} run ")
    assert box.call("run").stderr.startswith(b"kedge-agent: the command is already running")
    assert anonymous_kib(runner) < 4096
    (box.root / "results/output/go").touch()
    over = box.await_state("succeeded")
    assert (over["attempt"], over["exit_code"]) == (2, 0)
    lines = [line.split(" ", 1)[1] for line in box.log().splitlines()]
    assert lines.count("one half, the other half") == 2
    assert [line for line in lines if line.isdigit()] == [str(number) for number in range(1, 5001)] * 2
    assert "[kedge] exit code 3" in lines
    assert not box.processes()


def test_a_slim_runner_lets_its_command_checkpoint(box: Box) -> None:
    """A stop request gives the command its grace period, with the reason."""
    box.start('trap "sleep 0.3; echo saved; exit 0" TERM; while true; do sleep 0.05; done')
    await_slim(box)
    assert box.ask("stop", "--reason", "lunch")["reason"] == "lunch"
    assert box.await_state("stopped")["attempt"] == 1
    assert " saved\n" in box.log()
    assert "asked to stop: lunch" in box.log()


def test_a_stop_between_two_programs_is_held_back(box: Box) -> None:
    """It comes while the slim program starts, which has no handlers yet: it would end the runner."""
    for _ in range(3):
        box.start("sleep 1000")
        runner = box.note("state")["runner"]
        give_up = time.monotonic() + 60
        while not is_slim(runner):
            assert time.monotonic() < give_up
        os.kill(runner, signal.SIGTERM)
        assert box.await_state("stopped")["reason"] == "SIGTERM"


def test_a_killed_slim_runner_is_replaced(box: Box) -> None:
    """No process of the old attempt is left."""
    box.start('echo x >> "$KEDGE_OUTPUT_DIR/starts"; sleep 1000', restarts=2)
    box.begin("watch")
    runner = await_slim(box)
    old = box.processes()
    os.kill(runner, signal.SIGKILL)
    wait_for(lambda: box.note("state")["command"]["attempt"] == 2)
    assert "sleep 1000" not in " ".join(command_line(pid) for pid in old)
    await_slim(box)
    assert (box.root / "results/output/starts").read_text() == "x\nx\n"


def test_a_terminal_shows_the_output_of_a_slim_runner(box: Box) -> None:
    """The window of tmux has what the command writes before and after."""
    box.start(
        'echo before; until [ -e "$KEDGE_OUTPUT_DIR/go" ]; do sleep 0.05; done; seq 50; sleep 1000', supervisor="tmux"
    )
    await_slim(box)
    (box.root / "results/output/go").touch()
    capture = ["tmux", "-S", str(box.sockets / "tmux"), "capture-pane", "-p", "-t", "kedge", "-S", "-"]

    def shown() -> list[str]:
        return subprocess.run(capture, capture_output=True, text=True, check=True).stdout.split()

    wait_for(lambda: "50" in shown())
    assert "before" in shown()
    assert [word for word in shown() if word.isdigit()][-50:] == [str(number) for number in range(1, 51)]
