"""The watch restarts a runner that was killed, and reports the machine's state."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.agent.box import Box, wait_for

MakeBox = Callable[..., Box]


@pytest.mark.parametrize("supervisor", ["tmux", "screen", "nohup"])
def test_a_killed_runner_is_replaced(box: Box, supervisor: str) -> None:
    """No process of the old attempt is left, the next attempt resumes, and the log reports it."""
    box.start(
        'echo x >> "$KEDGE_OUTPUT_DIR/starts"; echo up; [ $(wc -l < "$KEDGE_OUTPUT_DIR/starts") = 2 ] || sleep 1000',
        supervisor=supervisor,
        restarts=2,
    )
    box.begin("watch")
    wait_for(lambda: " up\n" in box.log())
    sleeper = wait_for(lambda: [pid for pid in box.processes() if b"sleep\x001000" in _command_line(pid)])
    os.kill(box.note("state")["runner"], signal.SIGKILL)
    wait_for(lambda: box.note("state")["command"]["attempt"] == 2)
    assert not set(sleeper) & set(box.processes())
    assert box.await_state("succeeded")["attempt"] == 2
    assert "the runner died" in box.log()


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_a_killed_runner_without_restarts_left_is_a_failure(box: Box) -> None:
    """The watch ends the command's remaining processes and reports what happened."""
    box.start("echo up; sleep 1000", restarts=0)
    watch = box.begin("watch")
    wait_for(lambda: " up\n" in box.log())
    os.kill(box.note("state")["runner"], signal.SIGKILL)
    over = wait_for(lambda: box.note("state")["command"] if box.note("state")["command"]["state"] == "failed" else None)
    assert over["reason"] == "the runner died"
    wait_for(lambda: set(box.processes()) == {watch.pid})


def test_a_stop_wins_over_a_recovery(box: Box) -> None:
    """Requested when the runner is dead and about to be replaced: the run is stopped, and no process is left."""
    box.start("echo up; sleep 1000", restarts=3)
    watch = box.begin("watch")
    wait_for(lambda: " up\n" in box.log())
    os.kill(box.note("state")["runner"], signal.SIGKILL)
    assert box.ask("stop", "--reason", "enough")["state"] == "stopped"
    give_up = time.monotonic() + 3
    while time.monotonic() < give_up:
        assert box.command()["state"] == "stopped"
        assert set(box.processes()) <= {watch.pid}
        time.sleep(0.2)


def test_a_stop_holds_although_the_runner_died_before_answering(box: Box) -> None:
    """The runner was killed between the request and its answer: the run is not started again."""
    box.start("trap '' TERM; echo up; while true; do sleep 0.05; done", restarts=3, grace=1000.0)
    box.begin("watch")
    wait_for(lambda: " up\n" in box.log())
    stop = box.begin("stop")
    box.await_state("stopping")
    os.kill(box.note("state")["runner"], signal.SIGKILL)
    assert stop.wait(timeout=120) == 0
    box.await_state("stopped")
    wait_for(lambda: box.note("state")["command"]["state"] == "stopped")


def test_without_a_watch_a_dead_runner_is_reported_as_failed(box: Box) -> None:
    """`report` corrects a state that no process updates any more."""
    box.start("sleep 1000", restarts=3)
    box.await_state("running")
    os.kill(box.note("state")["runner"], signal.SIGKILL)
    assert box.await_state("failed")["reason"] == "the runner died"


SHUT_DOWN = """
trap 'echo saved > "$KEDGE_CHECKPOINT_DIR/last.pt"; exit 0' TERM
echo "up, resume <$KEDGE_RESUME>"; until [ -e "$KEDGE_NOTICE_FILE" ]; do sleep 0.05; done
"""


def reboot(box: Box) -> None:
    """Let the state be of an earlier boot, as after a shutdown: systemd has stopped all processes."""
    written = box.note("state")
    _, _, started = written["runner_identity"].partition(":")
    (box.root / "state.json").write_text(json.dumps({**written, "runner_identity": f"earlier-boot:{started}"}))


def test_a_command_that_a_shutdown_has_stopped_starts_again_after_the_reboot(box: Box) -> None:
    """It resumes from what it saved meanwhile, and counts as an attempt; until then the run isn't over."""
    box.start(SHUT_DOWN, restarts=1, supervisor="nohup")
    wait_for(lambda: " up, resume <>\n" in box.log())
    os.kill(box.note("state")["runner"], signal.SIGTERM)
    assert box.await_state("stopped")["exit_code"] == 0
    reboot(box)
    shown = box.command()
    assert (shown["state"], shown["reason"]) == ("restarting", "the machine was rebooted")
    box.begin("watch")
    wait_for(lambda: " up, resume <1>\n" in box.log())
    box.call("notice", "now")
    assert box.await_state("succeeded")["attempt"] == 2


@pytest.mark.parametrize("case", ["asked for", "no restart left", "a signal from somebody"])
def test_what_was_stopped_in_another_way_stays_stopped_after_a_reboot(box: Box, case: str) -> None:
    """By `kedge stop`, whatever the reason says; without a restart that is left; or by Ctrl-C in its terminal."""
    box.start(SHUT_DOWN, restarts=0 if case == "no restart left" else 1, supervisor="nohup")
    wait_for(lambda: " up, resume <>\n" in box.log())
    if case == "asked for":
        box.call("stop", "--reason", "SIGTERM")
    else:
        number = signal.SIGINT if case == "a signal from somebody" else signal.SIGTERM
        os.kill(box.note("state")["runner"], number)
    box.await_state("stopped")
    reboot(box)
    assert box.call("run").returncode == 0
    assert box.command()["state"] == "stopped"
    assert box.log().count(" up, ") == 1


def test_there_is_one_watch_for_a_machine(box: Box) -> None:
    """A second one exits quietly; SIGTERM ends the first one cleanly."""
    first = box.begin("watch")
    wait_for(lambda: box.note("heartbeat"))
    second = box.call("watch")
    assert (second.returncode, second.stdout, second.stderr) == (0, b"", b"")
    first.send_signal(signal.SIGTERM)
    assert first.wait(timeout=120) == 0


def test_the_machine_is_sampled(box: Box) -> None:
    """The newest sample is in the report, all of them are in the results as JSON Lines."""
    box.begin("watch")
    sample = wait_for(lambda: box.report()["sample"])
    assert 0 <= sample["cpu_percent"] <= 100
    assert 0 < sample["memory_used_mib"] < sample["memory_total_mib"]
    samples = box.root / "results/samples.jsonl"
    # Each sample becomes the newest before it is added to them.
    wait_for(lambda: samples.exists() and len(samples.read_text().splitlines()) >= 2)
    assert all(json.loads(line)["time"] > 0 for line in samples.read_text().splitlines())


def test_the_cost_is_counted_from_creation(make_box: MakeBox) -> None:
    """2.5 h at $1.99 are $4.98; kedge-cost prints the same, and no environment variable can break it."""
    box = make_box(created=time.time() - 2.5 * 3600)
    said = subprocess.run(
        [str(box.root / "bin/kedge-cost")],
        env={"PYTHONPATH": "/nonsense", "PYTHONHOME": "/nonsense", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        check=True,
    )
    assert said.stdout == b"Session: 2.5h elapsed, ~$4.98 spent\n"
    assert box.call("cost").stdout == said.stdout


def test_a_report_has_the_command_s_own_status(box: Box) -> None:
    """status.json is passed on, without values that strict JSON doesn't have; a broken one is left out."""
    status = box.root / "results/output/status.json"
    status.parent.mkdir(parents=True)
    status.write_text('{"step": 3, "loss": NaN, "name": "\\udcff", "best": [1e999, 0.5]}')
    report: dict[str, Any] = box.ask("report")
    assert report["progress"] == {"step": 3, "loss": None, "name": "?", "best": [None, 0.5]}
    status.write_text('{"step": ')
    assert box.ask("report")["progress"] is None


def test_a_report_says_when_the_command_last_made_progress(box: Box) -> None:
    """The newest of its log, its status.json and its checkpoint: a stall counts from there."""
    box.root.mkdir(exist_ok=True)
    log, status = box.root / "results/run.log", box.root / "results/output/status.json"
    status.parent.mkdir(parents=True)
    for step, file in enumerate((log, status), start=1):
        file.write_text("{}")
        os.utime(file, (step * 1000, step * 1000))
        assert box.report()["advanced"] == step * 1000
    (box.root / "checkpoint.json").write_text('{"name": "last.pt", "bytes": 5, "written": 3000}')
    assert box.ask("report")["advanced"] == 3000
