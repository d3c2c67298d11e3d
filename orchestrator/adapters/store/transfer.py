"""Transfers objects in parallel: the threads, and their common progress."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import TypeVar

from orchestrator.core.transfers import Progress

_Item = TypeVar("_Item")


class StoppedError(Exception):
    """The transfer was stopped."""


class TransferProgress:
    """Counts bytes from all threads, and stops those threads when the transfer is over."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress = progress
        self._total = total
        self._done = 0
        self._stopped = False
        self._lock = threading.Lock()

    def add(self, count: int) -> None:
        """Count transferred bytes.

        Raises:
            StoppedError: the transfer is over.
        """
        with self._lock:
            if self._stopped:
                raise StoppedError
            self._done += count
            self._progress(self._done, self._total)

    def expect(self, more: int) -> None:
        """Add bytes to the total."""
        with self._lock:
            self._total += more

    def stop(self) -> None:
        """Stop every thread at its next count."""
        with self._lock:
            self._stopped = True


def in_parallel(
    work: Callable[[_Item], None], items: Iterable[_Item], progress: TransferProgress, *, workers: int
) -> None:
    """Call `work` for every item in threads; the first failure, or Ctrl-C, stops the progress and cancels the rest.

    Raises:
        Exception: the first error that `work` raised.
    """
    with ThreadPoolExecutor(workers) as pool:
        futures = [pool.submit(work, item) for item in items]
        try:
            done, _ = wait(futures, return_when=FIRST_EXCEPTION)
            for future in done:
                future.result()
        except BaseException:
            progress.stop()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
