"""What is asked of a run from outside: stop, or checkpoint now. All processes agree on it between steps."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from trainer.checkpoints.intervals import daly_interval
from trainer.config import CheckpointSettings
from trainer.contract import RunContract
from trainer.distributed import World
from trainer.signals import StopFlag

SECONDS_BETWEEN_AGREEMENTS = 0.5
MOST_POLLS_BETWEEN_AGREEMENTS = 64
# What a save is taken to cost until the first has been measured: it only places the first one.
UNMEASURED_SAVE_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What all processes do now; `stop` is the reason, None to go on."""

    stop: str | None = None
    save: bool = False


GO_ON = Decision()


class Control:
    """One process's view of signals, notice file, deadline and checkpoint clock.

    `save_seconds` tells how long a save takes until it is durable, 0 where that isn't known yet. Only the main process
    watches the clock.
    """

    def __init__(
        self,
        world: World,
        stop: StopFlag,
        contract: RunContract,
        settings: CheckpointSettings,
        save_seconds: Callable[[], float],
    ) -> None:
        self._world = world
        self._stop = stop
        self._contract = contract
        self._settings = settings
        self._save_seconds = save_seconds
        self._life_seconds = 3600 * (settings.expected_life_hours or contract.expected_life_hours or 0.0)
        self._last_save = self._last_agreement = time.monotonic()
        self._notice_handled_ns = 0
        self._polls = 0
        self._polls_until_agreement = 1

    def poll(self) -> Decision:
        """Say what to do now. Collective: every process polls at the same points of the run.

        Alone, each poll looks; with peers, about two a second do, as often as all can keep up with.
        """
        self._polls += 1
        if self._polls < self._polls_until_agreement:
            return GO_ON
        stop_reason = self._stop_reason()
        stop, save = self._agree(stop=stop_reason is not None, save=self._wants_save())
        if not stop and not save:
            return GO_ON
        return Decision(stop=(stop_reason or "another process was told to") if stop else None, save=save)

    def note_save(self) -> None:
        """Remember that a checkpoint was just begun."""
        self._last_save = time.monotonic()

    def save_interval(self) -> float:
        """Tell how many seconds there are between two checkpoints, as things are now; infinity for none by time."""
        asked = self._settings.every_seconds or math.inf
        if not self._life_seconds:
            return asked
        cost = self._save_seconds() or UNMEASURED_SAVE_SECONDS
        return min(asked, daly_interval(cost_seconds=cost, life_seconds=self._life_seconds))

    def _agree(self, *, stop: bool, save: bool) -> tuple[bool, bool]:
        """Do what any process wishes for, and agree on when to ask again."""
        if self._world.size > 1:
            agreed = self._world.maximum([int(stop), int(save), -self._affordable_interval()])
            stop, save, self._polls_until_agreement = bool(agreed[0]), bool(agreed[1]), -agreed[2]
        self._polls = 0
        return stop, save

    def _stop_reason(self) -> str | None:
        if self._stop.reason:
            return self._stop.reason
        deadline = self._contract.deadline
        if deadline is None:
            return None
        left = deadline - time.time()
        if left < 2 * self._save_seconds() + self._settings.deadline_margin_seconds:
            return f"deadline in {max(0.0, left):.0f} s"
        return None

    def _wants_save(self) -> bool:
        if not self._world.is_main:
            return False
        return self._has_new_notice() or time.monotonic() - self._last_save >= self.save_interval()

    def _has_new_notice(self) -> bool:
        written_ns = _modified_ns(self._contract.notice_file)
        is_new = written_ns > self._notice_handled_ns
        self._notice_handled_ns = max(written_ns, self._notice_handled_ns)
        return is_new

    def _affordable_interval(self) -> int:
        now = time.monotonic()
        seconds_per_poll = (now - self._last_agreement) / self._polls
        self._last_agreement = now
        fitting = SECONDS_BETWEEN_AGREEMENTS / max(seconds_per_poll, 1e-6)
        # What comes next may be slower, as the first step is after the poll before it: a stop must not wait for many.
        return int(min(MOST_POLLS_BETWEEN_AGREEMENTS, 2 * self._polls, max(1.0, fitting)))


def _modified_ns(path: Path | None) -> int:
    if path is None:
        return 0
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
