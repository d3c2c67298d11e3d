"""`watch`: the daemon, one per machine.

The main thread holds heartbeat and deadline and does nothing slow; what samples, ships and recovers works in
threads of its own, so that none of it can hold the deadline up.
"""

from __future__ import annotations

import argparse
import signal
import threading
import time
from types import FrameType

from . import state
from .control import request_stop
from .ending import end_machine
from .files import try_lock, write_json
from .keeping import Keeper
from .layout import Layout
from .parse import read_machine_config
from .runlog import RunLog
from .sampling import Sampler
from .ships import ShipLoop
from .spot import POLL_SECONDS, SpotLoop
from .timetable import Timetable, plan_timetable
from .unready import Unready
from .wire import AWS, DEADLINE, MachineConfig
from .workers import Isolated, Worker

_ROUND_SECONDS = 1.0
_STOP_AGAIN_SECONDS = 5.0
_END_AGAIN_SECONDS = 3.0
_ENDED_AGAIN_SECONDS = 60.0
_DEFAULT_GRACE_SECONDS = 60.0


def execute(layout: Layout, _args: argparse.Namespace) -> int:
    """Watch until SIGTERM. A second watch leaves at once."""
    machine = read_machine_config(layout)
    layout.prepare()
    if try_lock(layout.lock("watch")) is None:
        return 0
    Watch(layout, machine).work()
    return 0


class Watch:
    """Heartbeat, and the way to the deadline."""

    def __init__(self, layout: Layout, machine: MachineConfig) -> None:
        self._layout = layout
        self._machine = machine
        self._log = RunLog(layout.log_file)
        self._leave = threading.Event()
        self._spot = SpotLoop(layout, self._log)
        self._ships = ShipLoop(
            layout,
            machine,
            self._log,
            last_ship=lambda: self._timetable().last_ship,
            in_haste=lambda: self._spot.notice > 0,
        )
        self._unready = Unready(layout, machine, self._log)
        self._isolated = Isolated(self._log)
        self._next_stop = 0.0
        self._next_end = 0.0

    def work(self) -> None:
        """Go round until SIGTERM."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        keeper = Keeper(self._layout, self._log)
        sampler = Sampler(self._layout, self._machine)
        Worker("sampler", sampler.step, self._machine.sample_every, self._log).start()
        Worker("shipper", self._ships.step, self._ships.round_seconds, self._log).start()
        Worker("keeper", keeper.step, _ROUND_SECONDS, self._log).start()
        if self._machine.metadata == AWS:
            Worker("spot", self._spot.step, min(POLL_SECONDS, self._machine.sample_every), self._log).start()
        while not self._leave.wait(self._until_next_round()):
            self._isolated.call("heartbeat", self._beat)
            self._isolated.call("deadline", self._hold_deadline)

    def _until_next_round(self) -> float:
        timetable = self._timetable()
        ahead = [at - time.time() for at in (timetable.stop, timetable.end) if at > time.time()]
        return max(0.01, min([_ROUND_SECONDS, *ahead]))

    def _beat(self) -> None:
        write_json(self._layout.note("heartbeat"), {"time": time.time()})

    def _hold_deadline(self) -> None:
        timetable = self._timetable()
        now = time.time()
        if now >= timetable.end or self._ships.is_done(now) or self._is_abandoned(now):
            self._isolated.call("end", self._end)
        elif now >= timetable.stop and now >= self._next_stop:
            self._next_stop = now + _STOP_AGAIN_SECONDS
            # It may have to wait for a lock, and this thread never waits.
            threading.Thread(target=self._isolated.call, args=("stop", self._stop), daemon=True).start()

    def _is_abandoned(self, now: float) -> bool:
        return bool(self._isolated.call("boot", lambda: self._unready.is_abandoned(now)))

    def _stop(self) -> None:
        request_stop(self._layout, DEADLINE)

    def _end(self) -> None:
        now = time.monotonic()
        if not self._machine.end_command or now < self._next_end:
            return
        self._next_end = now + _END_AGAIN_SECONDS
        self._log.remark("ending the machine")
        end_machine(self._layout, self._machine)
        # It is asked again if the machine is still there by then.
        self._next_end = now + _ENDED_AGAIN_SECONDS

    def _timetable(self) -> Timetable:
        grace = self._isolated.call("grace", lambda: state.load(self._layout).grace)
        return plan_timetable(
            self._machine.created, self._machine.deadline, _DEFAULT_GRACE_SECONDS if grace is None else grace
        )

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._leave.set()
