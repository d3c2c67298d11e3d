"""`watch`: the machine's daemon.

The main thread handles heartbeat and deadline, and does nothing slow; sampling, uploads and recovery have their own
threads, so that they can't delay the deadline.
"""

from __future__ import annotations

import signal
import threading
import time
from types import FrameType

from ..base import state
from ..base.config import list_tasks, present_log
from ..base.files import try_lock, write_json
from ..base.layout import Layout
from ..base.parse import read_machine_config
from ..base.runlog import RunLog
from ..base.timetable import Timetable, plan_timetable
from ..base.wire import AWS, DEADLINE, MachineConfig
from ..run.control import request_stop
from ..run.environment import publish_deadline
from .boot_watchdog import BootWatchdog
from .end_machine import end_this_machine
from .mode_gate import ROUND_SECONDS, ModeGate
from .runner_watchdog import RunnerWatchdog
from .sampling import Sampler
from .spot import POLL_SECONDS, SpotLoop
from .upload_loop import UploadLoop
from .workers import Isolated, Worker

_ROUND_SECONDS = 1.0
_STOP_AGAIN_SECONDS = 5.0
_END_AGAIN_SECONDS = 3.0
_ENDED_AGAIN_SECONDS = 60.0
_DEFAULT_GRACE_SECONDS = 60.0


def execute(layout: Layout) -> int:
    """Run until SIGTERM. A second watch exits at once."""
    machine = read_machine_config(layout)
    layout.prepare()
    if try_lock(layout.lock("watch")) is None:
        return 0
    Watch(layout, machine).work()
    return 0


class Watch:
    """The daemon's main thread: heartbeat and deadline."""

    def __init__(self, layout: Layout, machine: MachineConfig) -> None:
        self._layout = layout
        self._machine = machine
        self._version = (0, 0)
        self._log = RunLog(lambda: present_log(layout))
        self._leave = threading.Event()
        self._spot = SpotLoop(layout, self._log)
        self._uploads = UploadLoop(
            layout,
            machine,
            self._log,
            last_upload=lambda: self._timetable.last_upload,
            in_haste=lambda: self._spot.notice > 0,
        )
        self._boot_watchdog = BootWatchdog(layout, machine, self._log)
        self._isolated = Isolated(self._log)
        self._timetable = self._plan()
        self._next_stop = 0.0
        self._next_end = 0.0

    def work(self) -> None:
        """Loop until SIGTERM."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        runner_watchdog = RunnerWatchdog(self._layout)
        sampler = Sampler(self._layout, self._machine)
        Worker("sampler", sampler.step, self._machine.sample_every, self._log).start()
        Worker("shipper", self._uploads.step, self._uploads.round_seconds, self._log).start()
        Worker("runner_watchdog", runner_watchdog.step, _ROUND_SECONDS, self._log).start()
        gate = ModeGate(self._layout, self._machine, lambda: runner_watchdog.present)
        Worker("modes", gate.step, ROUND_SECONDS, self._log).start()
        if self._machine.metadata == AWS:
            Worker("spot", self._spot.step, min(POLL_SECONDS, self._machine.sample_every), self._log).start()
        while not self._leave.wait(self._until_next_round()):
            self._isolated.call("heartbeat", self._beat)
            self._isolated.call("machine", self._read_again)
            self._timetable = self._plan()
            self._isolated.call("deadline", self._hold_deadline)

    def _until_next_round(self) -> float:
        timetable = self._timetable
        ahead = [at - time.time() for at in (timetable.stop, timetable.end) if at > time.time()]
        return max(0.01, min([_ROUND_SECONDS, *ahead]))

    def _beat(self) -> None:
        write_json(self._layout.note("heartbeat"), {"time": time.time()})

    def _read_again(self) -> None:
        """Read machine.json again if it has changed: `extend` moves the deadline."""
        found = self._layout.machine_file.stat()
        version = (found.st_ino, found.st_mtime_ns)
        if version == self._version:
            return
        self._machine = read_machine_config(self._layout)
        self._version = version
        publish_deadline(self._layout, self._machine)

    def _hold_deadline(self) -> None:
        timetable = self._timetable
        now = time.time()
        if now >= timetable.end or self._uploads.is_done(now) or self._is_abandoned(now):
            self._isolated.call("end", self._end)
        elif now >= timetable.stop and now >= self._next_stop:
            self._next_stop = now + _STOP_AGAIN_SECONDS
            # In another thread, because it may wait for a lock, and this thread must never wait.
            threading.Thread(target=self._isolated.call, args=("stop", self._stop), daemon=True).start()

    def _is_abandoned(self, now: float) -> bool:
        return bool(self._isolated.call("boot", lambda: self._boot_watchdog.is_abandoned(now)))

    def _stop(self) -> None:
        for task in list_tasks(self._layout).values():
            request_stop(task, DEADLINE)

    def _end(self) -> None:
        now = time.monotonic()
        if not self._machine.end_command or now < self._next_end:
            return
        self._next_end = now + _END_AGAIN_SECONDS
        self._log.remark("ending the machine")
        end_this_machine(self._layout, self._machine)
        # The end command is repeated if the machine still exists by then.
        self._next_end = now + _ENDED_AGAIN_SECONDS

    def _plan(self) -> Timetable:
        grace = self._isolated.call("grace", lambda: max(each.grace for each in state.load_all(self._layout)))
        return plan_timetable(
            self._machine.created, self._machine.deadline_at, _DEFAULT_GRACE_SECONDS if grace is None else grace
        )

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self._leave.set()
