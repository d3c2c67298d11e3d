"""The stall watchdog: reports a step that takes far longer than the others.

The first epoch compiles kernels and fills caches, for up to half an hour (an MI300X with a cold MIOpen cache): during
it, only a step of that length counts as stalled.
"""

import statistics
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import TypeVar

from trainer.base.config import StallSettings

T = TypeVar("T")
_REMEMBERED_STEPS = 101
_SECONDS_BETWEEN_LOOKS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """A step that doesn't end: how long it has taken, and the line of code that it is in."""

    seconds: float
    where: str

    def __str__(self) -> str:
        return f"no step for {self.seconds:.0f} s, in {self.where}"


Report = Callable[[Stall | None], None]


def allowed_seconds(settings: StallSettings, *, median: float | None, is_warm: bool) -> float:
    """Compute how long a step may take before it counts as stalled. Pure.

    Args:
        settings: the factor and the bounds.
        median: the median of the last steps, in seconds; None if there was no step yet.
        is_warm: the first epoch of this process has ended.
    """
    patience = settings.first_epoch_minutes * 60
    if median is None:
        return patience
    limit = max(settings.seconds, settings.factor * median)
    return limit if is_warm else max(limit, patience)


class StallWatchdog:
    """Watches the steps of the loops that it follows, from a thread of its own."""

    def __init__(self, settings: StallSettings) -> None:
        self._settings = settings
        self._steps: deque[float] = deque(maxlen=_REMEMBERED_STEPS)
        self._since: float | None = None
        self._is_warm = False
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, report: Report) -> None:
        """Start to watch the calling thread's steps, unless the settings turn the watchdog off.

        Args:
            report: called in the watchdog's thread: with the stall when there is one, with None when it is over.
        """
        if self._settings.factor:
            arguments = (threading.get_ident(), report)
            self._thread = threading.Thread(target=self._watch, args=arguments, name="stall watch", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Stop watching."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def follow(self, steps: Iterable[T]) -> Iterator[T]:
        """Yield the items; the time from one to the next is a step. Outside of loops and in pauses nothing is timed."""
        self._since = time.monotonic()
        try:
            for item in steps:
                yield item
                now = time.monotonic()
                if self._since is not None:
                    self._steps.append(now - self._since)
                self._since = now
        finally:
            self._since = None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Time no step during the block: what it does may take as long as it needs, or follows steps of its own."""
        is_within = self._since is not None
        self._since = None
        try:
            yield
        finally:
            self._since = time.monotonic() if is_within else None

    def end_epoch(self) -> None:
        """Note that the first epoch has ended: from now on a step is compared to the median."""
        self._is_warm = True

    def _watch(self, watched: int, report: Report) -> None:
        alarmed_for: float | None = None
        while not self._over.wait(min(_SECONDS_BETWEEN_LOOKS, self._settings.seconds / 4)):
            since = self._since
            if since == alarmed_for:
                continue
            if alarmed_for is not None:
                report(None)
            alarmed_for = None
            seconds = 0.0 if since is None else time.monotonic() - since
            if seconds > self._allowed_seconds():
                report(Stall(seconds=seconds, where=_describe_place(sys._current_frames().get(watched))))
                alarmed_for = since

    def _allowed_seconds(self) -> float:
        median = statistics.median(self._steps.copy()) if self._steps else None
        return allowed_seconds(self._settings, median=median, is_warm=self._is_warm)


def _describe_place(frame: FrameType | None) -> str:
    if frame is None:
        return "an unknown place"
    innermost = traceback.extract_stack(frame)[-1]
    return f"{innermost.filename}:{innermost.lineno} {innermost.name}"
