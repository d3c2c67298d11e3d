"""The stream of log and reports: no line is lost or repeated, whenever the reader reconnects."""

from __future__ import annotations

import json
import time

from orchestrator.core.protocol.report import parse_report
from orchestrator.core.protocol.stream import FollowEvent, parse_follow_event
from tests.agent.box import Box, wait_for


def follow(box: Box, *argv: str) -> list[FollowEvent]:
    done = box.call("follow", *argv)
    assert done.returncode == 0, done.stderr.decode()
    return [parse_follow_event(line) for line in done.stdout.splitlines()]


def test_the_whole_log_is_followed_to_the_end(box: Box) -> None:
    """Each line arrives when it is written, invalid UTF-8 is replaced, and the last event is a report."""
    box.start(r"for i in 1 2 3; do echo line $i; sleep 0.1; done; printf 'caf\xe9\n'; exit 3")
    events = follow(box, "--offset", "0", "--until-over")
    lines = [event.line.split(" ", 1)[1] for event in events if event.line is not None]
    assert [line for line in lines if not line.startswith("[kedge]")] == ["line 1", "line 2", "line 3", "caf\ufffd"]
    last = events[-1]
    assert last.report is not None
    assert (last.report.command.state, last.report.command.exit_code) == ("failed", 3)
    assert last.offset == last.report.log_bytes == (box.root / "results/run.log").stat().st_size


def test_a_reader_that_reconnects_loses_and_repeats_nothing(box: Box) -> None:
    """From any offset, the rest of the log follows exactly."""
    box.start("for i in $(seq 40); do echo line $i ünï; done")
    box.await_state("succeeded")
    every = [event for event in follow(box, "--until-over") if event.line is not None]
    assert len(every) >= 40
    for event in every[:: max(1, len(every) // 5)]:
        rest = [later for later in follow(box, "--offset", str(event.offset), "--until-over") if later.line is not None]
        assert rest == every[every.index(event) + 1 :]


def test_lines_come_while_the_command_runs(box: Box) -> None:
    """A reader gets a line long before the command ends, and reports even if nothing happens."""
    box.start('while [ ! -e "$KEDGE_NOTICE_FILE" ]; do sleep 0.02; done; echo noticed; sleep 1000')
    box.await_state("running")
    reader = box.begin("follow")
    assert reader.stdout is not None
    box.call("notice", "now")
    noticed = time.monotonic()
    wait_for(lambda: b"noticed" in reader.stdout.readline())  # type: ignore[union-attr]
    assert time.monotonic() - noticed < 60
    wait_for(lambda: json.loads(reader.stdout.readline())["report"])  # type: ignore[union-attr]


def test_the_stream_ends_when_its_reader_leaves(box: Box) -> None:
    """No follower stays behind when its connection is gone."""
    box.start("while true; do echo tick; sleep 0.05; done")
    reader = box.begin("follow")
    assert reader.stdout is not None
    reader.stdout.readline()
    reader.stdout.close()
    assert reader.wait(timeout=60) == 0
    reader.stdout = None


def test_an_offset_beyond_the_log_begins_at_its_end(box: Box) -> None:
    """A new machine's log may be shorter than the lost machine's."""
    box.start("echo seen")
    box.await_state("succeeded")
    events = follow(box, "--offset", "1000000", "--until-over")
    assert [event.line for event in events] == [None]
    assert events[0].offset == (box.root / "results/run.log").stat().st_size


def test_a_line_longer_than_any_buffer_is_followed(box: Box) -> None:
    """A command may write to the log file itself: a line of megabytes arrives in pieces while it runs, in order."""
    box.start('head -c 3000000 /dev/zero | tr "\\0" x >> "$KEDGE_OUTPUT_DIR/../run.log"; exec sleep 30')
    log = box.root / "results/run.log"
    wait_for(lambda: log.exists() and log.stat().st_size > 3_000_000)
    lines = box.begin("follow", "--offset", "0")
    seen = 0
    assert lines.stdout is not None
    while seen < 2_000_000:
        event = parse_follow_event(lines.stdout.readline())
        seen += (event.line or "").count("x")
    lines.kill()
    box.call("kill")


def test_a_deeply_nested_status_does_not_prevent_reports(box: Box) -> None:
    """The parts of a user's status.json that the laptop would refuse are left out; the rest arrives."""
    odd = f'{{"step": 7, "deep": {"[" * 700}{"]" * 700}, "far": 1e999, "huge": {"9" * 400}}}'
    box.start(
        f"""echo '{odd}' > "$KEDGE_OUTPUT_DIR/status.json"; touch -d @99999999999 "$KEDGE_OUTPUT_DIR/status.json" """
    )
    box.await_state("succeeded")
    done = box.call("report")
    assert done.returncode == 0, done.stderr
    report = parse_report(done.stdout)
    assert report.progress is not None
    assert report.progress["step"] == 7
    assert report.progress["far"] is report.progress["huge"] is None
