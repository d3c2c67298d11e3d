"""Calls functions at the same time, each in a thread: for questions to machines, of which some may be silent."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

_AT_ONCE = 64
"""Machines that are silent until their time is up keep the others waiting only if they are as many."""

_Result = TypeVar("_Result")
_Waiting = queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]]]


def call_each(calls: Sequence[Callable[[], _Result]], cancel: Callable[[], None]) -> list[_Result]:
    """Call functions, 64 at a time, and return their results in the order of the functions.

    Ctrl-C, or an exception of one of them, ends this at once, whatever the others do.

    Args:
        calls: the functions.
        cancel: aborts those that are at work.
    """
    if len(calls) < 2:
        return [call() for call in calls]
    begun = Calls(calls, cancel)
    return begun.results(begun.futures)


class Calls(Generic[_Result]):
    """Calls that have begun, 64 at a time; the arguments are those of `call_each`.

    Attributes:
        futures: of the results, in the order of the functions.
    """

    def __init__(self, calls: Sequence[Callable[[], _Result]], cancel: Callable[[], None]) -> None:
        self.futures: list[Future[_Result]] = [Future() for _ in calls]
        self._cancel = cancel
        self._waiting: _Waiting = queue.SimpleQueue()
        for each in zip(self.futures, calls, strict=True):
            self._waiting.put(each)
        for _ in range(min(_AT_ONCE, len(calls))):
            # Daemon threads, unlike an executor's, so that the interpreter doesn't wait for them after Ctrl-C.
            threading.Thread(target=_work, args=(self._waiting,), daemon=True).start()

    def results(self, wanted: Iterable[Future[_Result]]) -> list[_Result]:
        """Wait for some of the results; Ctrl-C, or an exception of one of these, ends all calls."""
        try:
            return [future.result() for future in wanted]
        except BaseException:
            _take_all(self._waiting)
            self._cancel()
            raise


def _work(waiting: _Waiting) -> None:
    with contextlib.suppress(queue.Empty):
        while True:
            result, call = waiting.get_nowait()
            try:
                result.set_result(call())
            except BaseException as err:  # noqa: BLE001 - whoever waits for the result raises it
                result.set_exception(err)


def _take_all(waiting: _Waiting) -> None:
    with contextlib.suppress(queue.Empty):
        while True:
            waiting.get_nowait()
