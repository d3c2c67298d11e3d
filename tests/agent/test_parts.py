"""The agent's pure parts: lines, samples, times and money."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.agent.base.record import Record
from orchestrator.agent.base.runlog import LineSplitter, RunLog
from orchestrator.agent.base.timetable import plan_timetable
from orchestrator.agent.watch.cost import render_cost
from orchestrator.agent.watch.sampling import append_bounded
from tests.agent.configs import run_config


@given(st.lists(st.binary(max_size=40)), st.integers(1, 50))
def test_lines_don_t_depend_on_how_the_stream_is_cut(parts: list[bytes], limit: int) -> None:
    """The same bytes give the same lines, whether they arrive at once or in pieces; no line is too long."""
    whole, piecewise = LineSplitter(), LineSplitter()
    stream = b"".join(parts)
    expected = whole.feed(stream) + whole.finish()
    assert [line for part in parts for line in piecewise.feed(part)] + piecewise.finish() == expected
    assert b"".join(expected) == re.sub(rb"[\r\n]", b"", stream)
    bounded = LineSplitter(limit)
    pieces = bounded.feed(stream) + bounded.finish()
    assert all(len(piece) <= limit for piece in pieces[:-1])
    assert b"".join(pieces) == b"".join(expected)


def test_a_line_that_a_kill_has_torn_does_not_swallow_the_next(tmp_path: Path) -> None:
    """After a kill, the next writer of the log starts on a new line."""
    (tmp_path / "run.log").write_bytes(b"2026-11-21T11:48:05Z torn in the mid")
    RunLog(lambda: tmp_path / "run.log").remark("started, attempt 2 of 4")
    first, second = (tmp_path / "run.log").read_text().splitlines()
    assert first.endswith("torn in the mid")
    assert second.endswith("Z [kedge] started, attempt 2 of 4")


def test_log_lines_lost_on_a_full_disk_are_counted(tmp_path: Path) -> None:
    """When the log can be written again, it reports how many are missing."""
    path = tmp_path / "run.log"
    path.mkdir()
    log = RunLog(lambda: path)
    log.lines([b"1", b"2"])
    log.lines([b"3"])
    path.rmdir()
    log.lines([b"4"])
    assert [line.split(" ", 1)[1] for line in path.read_text().splitlines()] == [
        "[kedge] 3 lines were dropped: the disk was full",
        "4",
    ]


def test_samples_never_fill_the_disk(tmp_path: Path) -> None:
    """A full file is rotated once; there is never a third file."""
    for number in range(100):
        append_bounded(tmp_path / "samples.jsonl", b"%04d\n" % number, 50)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["samples.1.jsonl", "samples.jsonl"]
    kept = (tmp_path / "samples.1.jsonl").read_text() + (tmp_path / "samples.jsonl").read_text()
    assert kept.splitlines() == [f"{number:04d}" for number in range(80, 100)]


@pytest.mark.parametrize(
    ("seconds", "usd_per_hour", "said"),
    [
        (9000, "1.99", "Session: 2.5h elapsed, ~$4.98 spent"),
        (0, "0", "Session: 0.0h elapsed, ~$0.00 spent"),
        (180, "0.10", "Session: 0.1h elapsed, ~$0.01 spent"),
        (360000, "27.50", "Session: 100.0h elapsed, ~$2750.00 spent"),
    ],
)
def test_the_cost_is_exact(seconds: float, usd_per_hour: str, said: str) -> None:
    """Hours and cents are rounded half up."""
    assert render_cost(seconds, Decimal(usd_per_hour)) == said


@pytest.mark.parametrize(
    ("lifetime", "grace", "stop", "last_upload"),
    [(7200, 60, 7080, 7140), (3600, 60, 3480, 3540), (600, 60, 510, 570), (60, 60, 30, 57), (4, 60, 2, 3)],
)
def test_the_command_is_stopped_early_enough_to_save_and_upload(
    lifetime: float, grace: float, stop: float, last_upload: float
) -> None:
    """Time for grace and for the upload is reserved before the deadline, but never more than half of a short life."""
    planned = plan_timetable(1000.0, 1000.0 + lifetime, grace)
    assert (planned.stop, planned.last_upload, planned.end) == (1000 + stop, 1000 + last_upload, 1000 + lifetime)


@pytest.mark.parametrize(
    "append", [lambda path: append_bounded(path, b"x\n", 50), lambda path: RunLog(lambda: path).remark("x")]
)
def test_a_log_is_not_written_through_a_link(tmp_path: Path, append: Callable[[Path], None]) -> None:
    """The job may replace the log by a link: the link's target stays as it is, and the log takes its place back."""
    (tmp_path / "other").write_text("another's\n")
    (tmp_path / "log").symlink_to("other")
    append(tmp_path / "log")
    assert (tmp_path / "other").read_text() == "another's\n"
    assert not (tmp_path / "log").is_symlink()
    assert (tmp_path / "log").read_text().endswith("x\n")


class Point(Record):
    """Two fields, one with a default."""

    x: int
    y: int = 0


def test_a_record_has_its_fields_and_can_t_be_changed() -> None:
    """By position and by name, with defaults; equal values make equal records."""
    point = Point(1)
    assert (point.x, point.y, repr(point)) == (1, 0, "Point(x=1, y=0)")
    assert point == Point(x=1, y=0)
    assert hash(point) == hash(Point(1, 0))
    assert point.replace(y=2) == Point(1, 2) != point
    with pytest.raises(AttributeError, match=r"Point\.x can't be changed"):
        point.x = 2  # type: ignore[misc]


@pytest.mark.parametrize(("values", "named"), [((), {}), ((1, 2, 3), {}), ((1,), {"x": 1}), ((1,), {"z": 1})])
def test_a_record_with_other_fields_is_refused(values: tuple[int, ...], named: dict[str, int]) -> None:
    """Missing, too many, twice, unknown."""
    with pytest.raises(TypeError, match="Point has the fields x, y"):
        Point(*values, **named)


def test_a_run_s_configuration_is_shown_without_secrets() -> None:
    """A traceback may show it."""
    assert repr(run_config(run="r", secrets={"TOKEN": "hidden"})) == "RunConfig(run='r')"


def test_a_short_verb_imports_little() -> None:
    """Users wait for `report` with each command; each of these modules would cost a fifth of its time, or more."""
    code = "import sys, orchestrator.agent.main, orchestrator.agent.watch.report; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert not {"argparse", "ctypes", "dataclasses", "http.client", "inspect", "subprocess"} & {*done.stdout.split()}
