"""A step that hangs is reported with its place, and so is its end."""

import threading
import time
from pathlib import Path

import pytest

from trainer.base.config import StallSettings
from trainer.report.status import Status, StatusFile
from trainer.run.stall import Stall, StallWatchdog, allowed_seconds

QUICK = StallSettings(factor=2, seconds=0.04, first_epoch_minutes=0)
SECONDS = 30


# Stalls


@pytest.mark.parametrize(
    ("median", "is_warm", "expected"),
    [
        (None, False, 1800),
        (None, True, 1800),
        (0.1, False, 1800),
        (0.1, True, 60),
        (30.0, True, 600),
        (120, False, 2400),
    ],
)
def test_step_may_take_a_multiple_of_the_median_and_half_an_hour_in_the_first_epoch(
    median: float | None, is_warm: bool, expected: float
) -> None:
    """By default at least 20 x the median and 60 s; during the first epoch at least 30 minutes."""
    assert allowed_seconds(StallSettings(), median=median, is_warm=is_warm) == expected


def test_step_that_hangs_is_reported_with_its_place_and_so_is_its_end() -> None:
    """One report when it takes too long, with its function; one when the steps continue."""
    watch, seen = StallWatchdog(QUICK), _Seen()
    watch.start(seen)
    try:
        for number in watch.follow(range(6)):
            if number == 1:
                watch.end_epoch()
            if number == 3:
                seen.wait_for(1)  # until the report comes
        seen.wait_for(2)
    finally:
        watch.close()
    stall, end = seen.reports
    assert isinstance(stall, Stall)
    assert stall.seconds >= 0.04
    assert "test_stalls.py" in stall.where or "threading.py" in stall.where
    assert end is None


def test_nothing_is_reported_before_the_first_epoch_has_ended() -> None:
    """A first step that takes a hundred times as long as later ones compiles; it isn't stalled."""
    watch, seen = StallWatchdog(StallSettings(factor=2, seconds=0.01, first_epoch_minutes=30)), _Seen()
    watch.start(seen)
    try:
        for number in watch.follow(range(3)):
            time.sleep(0.2 if number == 2 else 0.001)
    finally:
        watch.close()
    assert seen.reports == []


def test_time_between_two_iterations_is_no_stall() -> None:
    """Checkpoints, and a recipe's work between epochs, aren't steps."""
    watch, seen = StallWatchdog(QUICK), _Seen()
    watch.start(seen)
    try:
        list(watch.follow(range(5)))
        watch.end_epoch()
        time.sleep(0.2)
    finally:
        watch.close()
    assert seen.reports == []


def test_watchdog_that_is_switched_off_has_no_thread() -> None:
    """`stall.factor=0` means never."""
    before = threading.active_count()
    watch = StallWatchdog(StallSettings(factor=0))
    watch.start(_Seen())
    assert threading.active_count() == before
    watch.close()


def test_warning_stays_in_status_json_until_it_is_cleared(tmp_path: Path) -> None:
    """It is there while the run is running, but never in its final status."""
    file = StatusFile(tmp_path / "status.json")
    status = Status(epoch=1, epochs=2, step=3, steps=4, metrics={}, checkpoint=None)
    file.warn("stalled: no step for 61 s", status)
    file.write("running", status)
    assert file.read()["warning"] == "stalled: no step for 61 s"
    file.write("stopped", status)
    assert "warning" not in file.read()
    file.warn(None, status)
    assert "warning" not in file.read()


class _Seen:
    """Keeps the reports of a watchdog."""

    def __init__(self) -> None:
        self.reports: list[Stall | None] = []
        self._came = threading.Condition()

    def __call__(self, stall: Stall | None) -> None:
        with self._came:
            self.reports.append(stall)
            self._came.notify_all()

    def wait_for(self, count: int) -> None:
        with self._came:
            assert self._came.wait_for(lambda: len(self.reports) >= count, SECONDS)
