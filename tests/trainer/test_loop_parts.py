"""Parts of the loop: the clock of epochs, pauses of the stall watchdog, positions in streams."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainer import harness, line
from trainer.base.config import StallSettings
from trainer.base.sources import Batch
from trainer.report.stopwatch import Lap, Stopwatch
from trainer.run.progress import Progress
from trainer.run.stall import StallWatchdog
from trainer.step.learner import StepResult


def test_lap_counts_the_time_until_the_device_has_settled() -> None:
    """Steps that are queued in no time count with the time that the device needs for them."""
    lap = Lap(lambda: time.sleep(0.05))
    for _ in range(10):
        lap.count()
    lap.end_training()
    assert lap.samples_per_second(8) <= 10 * 8 / 0.05
    lap.restart()
    lap.end_training()
    assert lap.samples_per_second(8) == 0


def test_pause_counts_in_no_throughput() -> None:
    """Samples that a recipe makes between two steps aren't training."""
    lap, stopwatch = Lap(lambda: None), Stopwatch()
    with lap.paused(), stopwatch.paused():
        time.sleep(0.5)
    lap.end_training()
    assert stopwatch.seconds() < 0.4
    assert lap.seconds() < 0.4


def test_pause_within_a_step_is_no_stall() -> None:
    """A validation between two steps, which has steps of its own, isn't timed as one."""
    watchdog = StallWatchdog(StallSettings(factor=1, seconds=0.01, first_epoch_minutes=0))
    stalls: list[Any] = []
    watchdog.start(stalls.append)
    for _ in watchdog.follow(range(3)):
        with watchdog.paused():
            for _ in watchdog.follow(range(2)):
                pass
            time.sleep(0.1)
    watchdog.close()
    assert stalls == []


def _result(loss: float) -> StepResult:
    return StepResult(torch.tensor(loss), torch.tensor(1.0), torch.tensor(0.0))


@pytest.mark.parametrize("collect_after", [(), (1,), (2,), (3,), (1, 2, 3)])
def test_epochs_that_end_before_their_figures_are_fetched_have_means_of_their_own(
    collect_after: tuple[int, ...],
) -> None:
    """An epoch's sums are the same whenever the device is waited for."""
    progress = Progress()
    for number, loss in enumerate([1.0, 2.0, 4.0, 8.0], start=1):
        progress.add(_result(loss))
        if number in collect_after:
            progress.collect_pending()
        if number == 2:
            progress.finish_epoch()
    progress.collect_pending()
    assert (progress.whole_epoch.loss, progress.whole_epoch.steps) == (12.0, 2)
    assert (progress.window.loss, progress.window.steps) == (15.0, 4)


class NumberStream:
    """An endless stream of numbers with a position."""

    def __init__(self, at: int, opened: list[int]) -> None:
        self.at = at
        self._opened = opened

    def __iter__(self) -> Iterator[Batch]:
        self._opened.append(self.at)
        while True:
            self.at += 1
            x_1 = torch.tensor([float(self.at % 7)])
            yield x_1, x_1 + 1

    def state_dict(self) -> dict[str, Any]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.at = state["at"]


class Numbers:
    """A source of such streams; notes the position at which each was opened."""

    def __init__(self) -> None:
        self.opened: list[int] = []

    def __len__(self) -> int:
        return line.STEPS_PER_EPOCH * line.BATCH

    def open(self, *, epoch: int, rank: int, world_size: int, seed: int) -> NumberStream:
        del rank, world_size, seed
        return NumberStream(1000 * epoch, self.opened)


def test_stream_goes_on_at_the_sample_where_it_was_stopped(tmp_path: Path) -> None:
    """The same bits as the uninterrupted run, without reading the epoch's beginning again."""
    assert line.train(line.recipe(train_data=Numbers()), tmp_path / "whole") == 0
    starts: list[int] = []
    for looks in (3, 6, 100):
        numbers = Numbers()
        assert line.train(line.recipe(train_data=numbers), tmp_path / "cut", harness.StopAtLook(looks)) == 0
        starts.append(numbers.opened[0])
    assert starts == [0, 2 * line.BATCH, 1000 + line.BATCH]
    harness.assert_same_run(tmp_path / "cut", tmp_path / "whole")
