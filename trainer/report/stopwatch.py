"""Measures throughput, and how long the training loop waits for data."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


class Stopwatch:
    """Counts steps, time and data wait since the last restart."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Reset all counts and start the time."""
        self._began = time.perf_counter()
        self._waited = 0.0
        self._steps = 0

    def count(self) -> None:
        """Count one step."""
        self._steps += 1

    def waiting(self, batches: Iterable[T]) -> Iterator[T]:
        """Yield the batches, and add up how long the loop waits for each."""
        iterator = iter(batches)
        while True:
            asked = time.perf_counter()
            try:
                batch = next(iterator)
            except StopIteration:
                return
            self._waited += time.perf_counter() - asked
            yield batch

    def seconds(self) -> float:
        """Return the seconds since the last restart."""
        return time.perf_counter() - self._began

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leave out the time of a block."""
        paused_at = time.perf_counter()
        yield
        self._began += time.perf_counter() - paused_at

    def samples_per_second(self, batch_size: int) -> float:
        """Return the throughput since the last restart, for a global batch."""
        return self._steps * batch_size / max(self.seconds(), 1e-9)

    def data_wait(self) -> float:
        """Return the share of time since the last restart that was spent waiting for data, 0 to 1.

        On a GPU this is the loop's wait, which costs nothing while the device still has queued steps.
        """
        return min(1.0, self._waited / max(self.seconds(), 1e-9))


class Lap:
    """Throughput and time from one line about epochs to the next.

    A device runs behind the loop: `settle` waits until it has finished all queued steps, so that the time is theirs.
    """

    def __init__(self, settle: Callable[[], object]) -> None:
        self._settle = settle
        self.restart()

    def restart(self) -> None:
        """Start anew; call it when the device has nothing to do."""
        self._began = time.perf_counter()
        self._steps = 0
        self._trained = 0.0

    def count(self) -> None:
        """Count one step."""
        self._steps += 1

    def end_training(self) -> None:
        """Take the time of the steps, when the device has finished them."""
        self._settle()
        self._trained = self.seconds()

    def seconds(self) -> float:
        """Return the seconds since the restart."""
        return time.perf_counter() - self._began

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leave out the time of a block; the device finishes the steps before it."""
        self._settle()
        paused_at = time.perf_counter()
        yield
        self._began += time.perf_counter() - paused_at

    def samples_per_second(self, batch_size: int) -> float:
        """Return the throughput up to `end_training`, for a global batch."""
        return self._steps * batch_size / max(self._trained, 1e-9)
