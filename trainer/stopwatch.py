"""Where an epoch's time goes: steps done, and how long the loop waited for their data."""

import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


class Stopwatch:
    """Throughput, and the share of the time that was spent waiting for data, since the last restart."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Forget what was counted; time starts now."""
        self._began = time.perf_counter()
        self._waited = 0.0
        self._steps = 0

    def count(self) -> None:
        """Count one step."""
        self._steps += 1

    def waiting(self, batches: Iterable[T]) -> Iterator[T]:
        """Yield the batches, and count the time that each lets the loop wait."""
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
        """Tell the time since the last restart, in seconds."""
        return time.perf_counter() - self._began

    def samples_per_second(self, batch_size: int) -> float:
        """Tell the throughput since the last restart, for a global batch."""
        return self._steps * batch_size / max(self.seconds(), 1e-9)

    def data_wait(self) -> float:
        """Tell which share of the time since the last restart went into waiting for data, 0 to 1.

        On a GPU it counts what the loop waits; a wait during which the device still has steps to do costs nothing.
        """
        return min(1.0, self._waited / max(self.seconds(), 1e-9))
