"""A command's life under each supervisor, with real processes throughout."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from pathlib import Path

import pytest

from tests.agent.box import Box, wait_for
from tests.agent.configs import encode

SUPERVISORS = ("tmux", "screen", "nohup")

CHECKPOINTING = r"""
cat > train.py <<'END'
import os, pathlib, signal, sys, time
folder = pathlib.Path(os.environ["KEDGE_CHECKPOINT_DIR"])
def on_term(*_):
    time.sleep(0.5)
    (folder / "last.pt").write_text("saved")
    print("checkpointed", flush=True)
    sys.exit(1)
signal.signal(signal.SIGTERM, on_term)
print("training", flush=True)
while True:
    time.sleep(0.05)
END
python3 train.py
echo "never reached"
"""


@pytest.mark.parametrize("supervisor", SUPERVISORS)
def test_a_command_runs_and_its_exit_code_is_kept(box: Box, supervisor: str) -> None:
    """Its output is in the log; the run has failed with its exit code, because no restart was allowed."""
    started = box.start("echo hello; echo trouble >&2; exit 7", supervisor=supervisor)
    assert started["attempt"] in (0, 1)
    over = box.await_state("failed")
    assert (over["exit_code"], over["attempt"], over["supervisor"]) == (7, 1, supervisor)
    assert "exit code 7" in over["reason"]
    assert " hello\n" in box.log()
    assert " trouble\n" in box.log()


@pytest.mark.parametrize("supervisor", SUPERVISORS)
def test_stop_waits_for_the_checkpoint_of_a_child_behind_the_shell(box: Box, supervisor: str) -> None:
    """The shell dies of SIGTERM at once; the run is stopped only when its child has saved and exited."""
    box.start(CHECKPOINTING, supervisor=supervisor)
    wait_for(lambda: " training\n" in box.log())
    stopped = box.ask("stop", "--reason", "lunch")
    assert (stopped["state"], stopped["reason"]) == ("stopped", "lunch")
    assert (box.root / "results/checkpoints/last.pt").read_text() == "saved"
    assert " checkpointed\n" in box.log()
    assert " never reached\n" not in box.log()
    wait_for(lambda: not box.processes())


@pytest.mark.parametrize("supervisor", SUPERVISORS)
def test_kill_ends_the_command_and_all_that_it_started_at_once(box: Box, supervisor: str) -> None:
    """A child that ignores SIGTERM and a daemon in its own session die too."""
    box.start("trap '' TERM; setsid sleep 1000 & sleep 1000 & echo up; wait", supervisor=supervisor)
    wait_for(lambda: " up\n" in box.log())
    killed = box.ask("kill")
    assert (killed["state"], killed["reason"]) == ("stopped", "killed")
    wait_for(lambda: not box.processes())


@pytest.mark.parametrize("supervisor", SUPERVISORS)
def test_a_second_start_changes_nothing(box: Box, supervisor: str) -> None:
    """It reports that the command is running, prints its state, and succeeds."""
    box.start("echo first; sleep 1000", supervisor=supervisor)
    first = box.await_state("running")
    again = box.call("start", stdin=encode(box.config("echo second", supervisor=supervisor)))
    assert again.returncode == 0
    assert b"already running" in again.stderr
    assert json.loads(again.stdout)["since"] == first["since"]
    assert "echo first" in (box.root / "run.json").read_text()


@pytest.mark.parametrize(("supervisor", "program"), [("tmux", "tmux"), ("screen", "screen")])
def test_a_terminal_shows_what_the_command_prints(box: Box, supervisor: str, program: str) -> None:
    """Attached to a pseudo-terminal, the client shows the command's output."""
    box.start("while true; do echo tick-tock; sleep 0.1; done", supervisor=supervisor)
    pid, terminal = os.forkpty()
    if pid == 0:
        os.execve(box.launcher, [box.launcher, "attach"], {**box.env, "TERM": "xterm"})
    shown = b""
    give_up = time.monotonic() + 60
    while b"tick-tock" not in shown:
        assert time.monotonic() < give_up, shown
        shown += os.read(terminal, 4096)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.close(terminal)


def test_attach_without_a_terminal_says_what_to_use_instead(box: Box) -> None:
    """Under nohup there is nothing to attach to: exit code 2, and the error names the log command."""
    box.start("sleep 1000")
    refused = box.call("attach")
    assert refused.returncode == 2
    assert b"logs" in refused.stderr


def test_a_failed_command_is_started_again_and_resumes(box: Box) -> None:
    """The third attempt of four succeeds; each attempt found the files of the one before."""
    box.start(
        "cd $KEDGE_OUTPUT_DIR; echo x >> starts; echo start $(wc -l < starts); [ $(wc -l < starts) -ge 3 ]",
        restarts=3,
    )
    over = box.await_state("succeeded")
    assert (over["attempt"], over["exit_code"]) == (3, 0)
    assert "[kedge] started, attempt 2 of 4\n" in box.log()
    assert " start 3\n" in box.log()


def test_exhausted_restarts_are_a_failure(box: Box) -> None:
    """Two restarts make three attempts; the last exit code is kept."""
    box.start('echo x >> "$KEDGE_OUTPUT_DIR/starts"; exit 5', restarts=2)
    over = box.await_state("failed")
    assert (over["attempt"], over["exit_code"]) == (3, 5)
    assert (box.root / "results/output/starts").read_text() == "x\n" * 3


def test_a_success_after_a_requested_stop_is_stopped(box: Box) -> None:
    """The design says: an exit after a requested stop is `stopped`, whatever its code."""
    box.start("trap 'exit 0' TERM; echo up; while true; do sleep 0.05; done")
    wait_for(lambda: " up\n" in box.log())
    assert box.ask("stop")["state"] == "stopped"


def test_processes_that_ignore_sigterm_are_killed_after_the_grace(box: Box) -> None:
    """A stop never waits longer than the grace; a daemon that left the session is killed, too."""
    box.start("trap '' TERM; setsid sleep 1000 & echo up; while true; do sleep 0.05; done", grace=0.5)
    wait_for(lambda: " up\n" in box.log())
    began = time.monotonic()
    assert box.ask("stop")["state"] == "stopped"
    assert time.monotonic() - began < 60
    wait_for(lambda: not box.processes())


def test_background_processes_end_with_their_command(box: Box) -> None:
    """A background process doesn't keep a run alive, and doesn't run twice after a restart."""
    box.start("sleep 1000 & setsid sleep 1000 & exit 0")
    assert box.await_state("succeeded")["exit_code"] == 0
    wait_for(lambda: not box.processes())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_to_the_runner_is_a_stop(box: Box, number: signal.Signals) -> None:
    """SIGTERM from the supervisor, Ctrl-C in its terminal and SIGHUP all let the command checkpoint."""
    box.start(CHECKPOINTING, supervisor="tmux")
    wait_for(lambda: " training\n" in box.log())
    os.kill(box.note("state")["runner"], number)
    over = box.await_state("stopped")
    assert over["reason"] == number.name
    assert (box.root / "results/checkpoints/last.pt").exists()


def test_a_stop_during_the_setup_works_at_once(box: Box) -> None:
    """The command isn't started any more."""
    box.start("echo command", setup="echo setting; sleep 1000")
    wait_for(lambda: " setting\n" in box.log())
    assert box.command()["state"] == "setting-up"
    assert box.ask("stop")["state"] == "stopped"
    assert " command\n" not in box.log()


def test_a_stop_during_the_pause_before_a_restart_works_at_once(box: Box) -> None:
    """The stop doesn't wait for the end of the pause."""
    box.start("exit 3", restarts=5, restart_after=1000.0)
    box.await_state("restarting")
    began = time.monotonic()
    stopped = box.ask("stop")
    assert (stopped["state"], stopped["exit_code"]) == ("stopped", 3)
    assert time.monotonic() - began < 60


def test_stopping_a_command_that_does_not_run_is_no_error(box: Box) -> None:
    """It prints the state, idle or over."""
    assert box.ask("stop")["state"] == "idle"
    box.start("true")
    box.await_state("succeeded")
    assert box.ask("stop")["state"] == "succeeded"
    assert box.ask("kill")["state"] == "succeeded"


def test_setup_runs_once_for_each_content_of_the_code(box: Box) -> None:
    """A second start of the same code doesn't repeat it; a changed setup does."""
    setup = 'echo x >> "$KEDGE_OUTPUT_DIR/setups"'
    for text in (setup, setup, f"{setup} # changed"):
        box.start("true", setup=text)
        box.await_state("succeeded")
    assert (box.root / "results/output/setups").read_text() == "x\n" * 2


def test_a_failed_setup_is_retried_like_a_failed_command(box: Box) -> None:
    """The state names the setup as the cause."""
    box.start("true", setup="exit 9", restarts=1)
    over = box.await_state("failed")
    assert (over["attempt"], over["exit_code"]) == (2, 9)
    assert "setup failed with exit code 9" in over["reason"]


def test_every_line_of_the_log_has_its_time(box: Box) -> None:
    """Carriage returns end lines too, and invalid UTF-8 survives."""
    box.start(r"printf '10%%\r20%%\rdone\r\n\n'; printf 'caf\xe9 \xff\n'; printf 'no end'")
    box.await_state("succeeded")
    raw = (box.root / "results/run.log").read_bytes()
    stamp = rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ "
    assert all(re.match(stamp, line) for line in raw.splitlines())
    texts = [line.split(b" ", 1)[1] for line in raw.split(b"\n")[:-1]]
    assert [text for text in texts if not text.startswith(b"[kedge]")] == [
        b"10%",
        b"20%",
        b"done",
        b"",
        b"caf\xe9 \xff",
        b"no end",
    ]


def test_a_pipeline_fails_with_its_first_failing_part(box: Box) -> None:
    """The script is run with pipefail."""
    box.start("exit 4 | cat")
    assert box.await_state("failed")["exit_code"] == 4


def test_a_finished_run_is_not_started_again_by_a_reboot(box: Box) -> None:
    """`run`, as a unit enabled at boot calls it, does nothing once the command is over."""
    box.start('echo x >> "$KEDGE_OUTPUT_DIR/starts"')
    box.await_state("succeeded")
    assert box.call("run").returncode == 0
    assert (box.root / "results/output/starts").read_text() == "x\n"


def test_a_notice_reaches_the_command(box: Box) -> None:
    """The command sees the file and goes on."""
    box.start('until [ -e "$KEDGE_NOTICE_FILE" ]; do sleep 0.05; done; cat "$KEDGE_NOTICE_FILE"')
    box.await_state("running")
    assert box.call("notice", "checkpoint now").returncode == 0
    box.await_state("succeeded")
    assert " checkpoint now\n" in box.log()


def test_a_full_disk_does_not_end_the_command(box: Box) -> None:
    """Even if the log can't be written at all, the command runs to its end."""
    Path(box.root / "results").mkdir(exist_ok=True)
    (box.root / "results/run.log").unlink(missing_ok=True)
    (box.root / "results/run.log").symlink_to("/dev/full")
    box.start('for i in $(seq 3000); do echo $i; done; echo done > "$KEDGE_OUTPUT_DIR/done"')
    box.await_state("succeeded")
    assert (box.root / "results/output/done").exists()
