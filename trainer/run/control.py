"""Requests from outside: stop, or checkpoint now. All processes agree on them between steps."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from trainer.base.config import CheckpointSettings
from trainer.base.contract import RunContract
from trainer.base.signals import StopFlag
from trainer.group.distributed import ProcessGroup
from trainer.run.checkpoint_interval import daly_interval

SECONDS_BETWEEN_SYNCS = 0.5
MAX_POLLS_BETWEEN_SYNCS = 64
# Of epochs that weren't validated: thousands of short ones aren't worth a save each.
SECONDS_BETWEEN_EPOCH_SAVES = 30.0
# The assumed cost of a save until the first has been measured: it only affects when that one starts.
UNMEASURED_SAVE_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What all processes do now; `stop` is the reason to stop, None to go on."""

    stop: str | None = None
    save: bool = False


CONTINUE = Decision()


class Control:
    """Watches this process's signals, notice file, deadline and checkpoint clock.

    `save_seconds` returns how long a save takes until it is durable, 0 while that is unknown. Only the main process
    watches the clock.
    """

    def __init__(
        self,
        group: ProcessGroup,
        stop: StopFlag,
        contract: RunContract,
        settings: CheckpointSettings,
        save_seconds: Callable[[], float],
    ) -> None:
        self._group = group
        self._stop = stop
        self._contract = contract
        self._settings = settings
        self._save_seconds = save_seconds
        self._life_seconds = 3600 * (settings.expected_life_hours or contract.expected_life_hours or 0.0)
        self._last_save = self._last_sync = time.monotonic()
        self._notice_handled_ns = 0
        self._deadline_at = contract.deadline_at
        self._polls = 0
        self._polls_until_sync = 1

    def poll(self) -> Decision:
        """Decide what to do now. Collective: every process polls at the same points of the run.

        A single process checks at each poll. A group synchronises about twice a second, at polls that all agree on.
        """
        self._polls += 1
        if self._polls < self._polls_until_sync:
            return CONTINUE
        stop_reason = self._stop_reason()
        stop, save = self._all_reduce_requests(stop=stop_reason is not None, save=self._wants_save())
        if not stop and not save:
            return CONTINUE
        return Decision(stop=(stop_reason or "another process was told to stop") if stop else None, save=save)

    def note_save(self) -> None:
        """Restart the checkpoint clock, because a save has just started."""
        self._last_save = time.monotonic()

    def is_last_save_old(self) -> bool:
        """Return whether the last save is so long ago that an epoch without a validation is worth one. Collective."""
        is_old = time.monotonic() - self._last_save >= SECONDS_BETWEEN_EPOCH_SAVES
        (agreed,) = self._group.all_reduce_max([int(is_old and self._group.is_main)])
        return bool(agreed)

    def save_interval(self) -> float:
        """Return the current seconds between two checkpoints; infinity if none are due by time."""
        asked = self._settings.every_seconds or math.inf
        if not self._life_seconds:
            return asked
        cost = self._save_seconds() or UNMEASURED_SAVE_SECONDS
        return min(asked, daly_interval(cost_seconds=cost, life_seconds=self._life_seconds))

    def _all_reduce_requests(self, *, stop: bool, save: bool) -> tuple[bool, bool]:
        """Combine all processes' requests, and agree on the next poll that synchronises."""
        if self._group.size > 1:
            agreed = self._group.all_reduce_max([int(stop), int(save), -self._polls_until_next_sync()])
            stop, save, self._polls_until_sync = bool(agreed[0]), bool(agreed[1]), -agreed[2]
        self._polls = 0
        return stop, save

    def _stop_reason(self) -> str | None:
        if self._stop.reason:
            return self._stop.reason
        if self._deadline_at is None:
            return None
        needed = 2 * self._save_seconds() + self._settings.deadline_margin_seconds
        if self._deadline_at - time.time() < needed:
            # It may have been moved. If it was moved to an earlier time, SIGTERM comes before that.
            self._deadline_at = _read_number(self._contract.deadline_file, self._deadline_at)
        left = self._deadline_at - time.time()
        return f"deadline in {max(0.0, left):.0f} s" if left < needed else None

    def _wants_save(self) -> bool:
        if not self._group.is_main:
            return False
        return self._has_new_notice() or time.monotonic() - self._last_save >= self.save_interval()

    def _has_new_notice(self) -> bool:
        written_ns = _modified_ns(self._contract.notice_file)
        is_new = written_ns > self._notice_handled_ns
        self._notice_handled_ns = max(written_ns, self._notice_handled_ns)
        return is_new

    def _polls_until_next_sync(self) -> int:
        now = time.monotonic()
        seconds_per_poll = (now - self._last_sync) / self._polls
        self._last_sync = now
        fitting = SECONDS_BETWEEN_SYNCS / max(seconds_per_poll, 1e-6)
        # The next polls may be slower (the first step is): a stop must not wait for many of them.
        return int(min(MAX_POLLS_BETWEEN_SYNCS, 2 * self._polls, max(1.0, fitting)))


def _read_number(path: Path | None, usual: float) -> float:
    """Read a number from a file; the usual one if there is no such file, or it holds something else."""
    try:
        return float(path.read_text()) if path is not None else usual
    except (OSError, ValueError):
        return usual


def _modified_ns(path: Path | None) -> int:
    if path is None:
        return 0
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
