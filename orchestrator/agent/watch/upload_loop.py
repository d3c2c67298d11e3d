"""Uploads results: periodically, immediately when the command is over, and a last time before the deadline.

A checkpoint that isn't complete when it is time is uploaded as soon as it is, instead of at the next time.

When the machine is about to be interrupted, uploads follow one another without a pause.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from ..base.config import list_tasks, peek_run_config, present_mode
from ..base.errors import AgentError
from ..base.files import read_json, write_json
from ..base.layout import Layout, TaskLayout
from ..base.record import to_json
from ..base.runlog import RunLog
from ..base.state import RunState, observe_run
from ..base.wire import FAILED, LOST_PEER, SUCCEEDED, Command, MachineConfig, UploadState
from ..results.complete import Completeness, Version, newest
from ..results.fresh_start import FreshStarts
from ..results.listing import ResultEntry, scan_own
from ..results.parts import read_awaited
from ..results.restore import is_restored
from ..results.snapshots import take_snapshot
from ..results.upload import Uploader, shown
from ..run.caches import upload_caches
from ..s3.store import open_results
from .head import HeadWatch

_HASTE_SECONDS = 1.0
_FOLLOWED_SECONDS = 60.0
_ALONE_SECONDS = 30.0
_STILL_SECONDS = 1.0
_CACHES_EVERY = 10
"""Compiled kernels are uploaded once per this many uploads, because most are made in a run's first minutes."""


class UploadLoop:
    """Scans the results in each round, and uploads them when it is time."""

    def __init__(
        self,
        layout: Layout,
        machine: MachineConfig,
        log: RunLog,
        *,
        last_upload: Callable[[], float],
        in_haste: Callable[[], bool],
    ) -> None:
        self._layout = layout
        self._machine = machine
        self._log = log
        self._last_upload = last_upload
        self._in_haste = in_haste
        self._completeness = Completeness(layout.results)
        self._fresh_starts: dict[str, FreshStarts] = {}
        self._offered: Mapping[str, Version] = {}
        self._snapped: frozenset[str] = frozenset()
        self._told: frozenset[str] = frozenset()
        self._uploader: Uploader | None = None
        self._next_look = 0.0
        self._has_looked = False
        self._tried_at = time.monotonic()
        self._over_since = 0.0
        self._done_at: float | None = None
        self._mode = (*present_mode(layout), False)
        self._head = HeadWatch(machine)
        self._has_lost_others = False
        self._last_is_uploaded = False
        self._answered: dict[str, float] = {}
        self._is_awaited = False
        self._next_caches = self._tried_at + _CACHES_EVERY * machine.ship_every

    @property
    def round_seconds(self) -> float:
        """The interval at which to call `step`."""
        return min(0.5, self._machine.sample_every)

    def is_done(self, now: float) -> bool:
        """Whether the command is over for good, all results are uploaded, and the linger is over.

        If nobody follows the command, nobody is about to fetch from this machine, so the linger is short.
        """
        if self._done_at is None or not (self._head.is_done or self._has_lost_others):
            return False
        is_followed = followed_at(self._layout) > self._done_at - _FOLLOWED_SECONDS
        return now >= self._done_at + (
            self._machine.linger if is_followed else min(self._machine.linger, _ALONE_SECONDS)
        )

    def step(self) -> None:
        """Scan, and upload if it is time."""
        self._look()
        began = time.time()
        present = observe_run(self._layout)
        command = present.command
        # Once all tasks of a mode are over, nothing of it changes any more, even if another mode follows.
        is_final = all(each.is_over for each in present.tasks.values())
        mode = (present.sequence, present.mode, is_final)
        # If the command runs again after a stop, upload soon: if the machine is lost, the store must not say that the
        # user has stopped the command.
        is_back = not command.is_over and self._over_since > 0
        # Likewise at a mode's end, and when the next one begins: the store must say which one to go on with.
        has_changed = mode != self._mode
        if not command.is_over:
            self._done_at = None
        if not self._machine.store_url:
            return
        is_just_over = command.is_over and command.since != self._over_since
        if not is_restored(self._layout):
            # The command never started, because the store's results weren't restored: there is nothing to upload.
            if is_just_over:
                self._settle(command)
        elif is_just_over:
            self._upload_end(present, began)
        elif is_back or has_changed or self._is_awaited or self._is_due() or self._is_last():
            self._over_since = self._over_since if command.is_over else 0.0
            self._mode = mode
            self._upload(present, began, final=is_final)
        if time.monotonic() >= self._next_caches and not self._in_haste():
            self._next_caches = time.monotonic() + _CACHES_EVERY * self._machine.ship_every
            upload_caches(self._layout, self._machine)
        self._head.look()

    def _look(self) -> None:
        self._has_looked = time.monotonic() >= self._next_look
        if not self._has_looked:
            return
        self._next_look = time.monotonic() + self._machine.sample_every
        found = self._scan()
        self._completeness.look(found)
        self._is_awaited = self._is_awaited or self._has_settled()
        for task in list_tasks(self._layout).values():
            self._look_at(task, found)

    def _has_settled(self) -> bool:
        """Whether the last upload left a checkpoint out that could be uploaded now.

        Otherwise one that is rewritten every 30 seconds might be incomplete whenever it is time.
        """
        ready = self._completeness.ready
        held_back = self._uploader.held_back if self._uploader else set()
        return any(unit in ready and ready[unit] != self._offered.get(unit) for unit in held_back)

    def _scan(self) -> list[ResultEntry]:
        return [found for found in scan_own(self._layout) if not found.unfit]

    def _look_at(self, task: TaskLayout, found: list[ResultEntry]) -> None:
        """Find a task's newest checkpoint, and whether its command seems to have started over."""
        task.folder.mkdir(parents=True, exist_ok=True)
        seen = self._completeness
        fresh_starts = self._fresh_starts.setdefault(task.key, FreshStarts(task, self._log))
        fresh_starts.look(found, seen.complete.keys() | seen.whole)
        own = {unit for unit in seen.complete.keys() | (seen.restless & seen.whole) | self._snapped if task.owns(unit)}
        checkpoint = newest(found, own)
        write_json(task.note("checkpoint"), to_json(checkpoint) if checkpoint else {})
        self._look_for_others(task)

    def _look_for_others(self, task: TaskLayout) -> None:
        """Upload soon if other machines wait for a checkpoint that is complete by now; once for each request."""
        unit, since = read_awaited(task)
        # Any other time is another request, also after the clock was set back.
        if since != self._answered.get(task.key, 0.0) and unit in self._completeness.complete:
            self._answered[task.key] = since
            self._is_awaited = True

    def _is_due(self) -> bool:
        """Whether it is time; right after a scan, or the checkpoints that it found complete could be gone again."""
        waited = time.monotonic() - self._tried_at
        if self._in_haste():
            return waited >= min(self._machine.ship_every, _HASTE_SECONDS)
        return self._has_looked and waited >= self._machine.ship_every

    def _is_last(self) -> bool:
        return not self._last_is_uploaded and time.time() >= self._last_upload()

    def _upload_end(self, present: RunState, began: float) -> None:
        has_failed = bool(read_json(self._layout.note("shipped")).get("error"))
        if has_failed and not self._is_due() and not self._is_last():
            return
        self._upload(present, began, final=True)
        self._settle(present.command)

    def _settle(self, command: Command) -> None:
        self._over_since = command.since
        # It has waited for the others in vain: nothing tells that the head is done, if the head is lost.
        self._has_lost_others = command.state == FAILED and command.reason.startswith(LOST_PEER)
        config = peek_run_config(self._layout)
        if command.state in (SUCCEEDED, FAILED) and not (config and config.keep):
            self._done_at = time.time()

    def _upload(self, present: RunState, began: float, *, final: bool) -> None:
        self._is_awaited = False
        self._last_is_uploaded = self._is_last() or self._last_is_uploaded
        self._tried_at = time.monotonic()
        try:
            uploader = self._open()
            if uploader is None:
                return
            uploaded = self._upload_whole(uploader, present, began, final=final)
        except (OSError, AgentError, ValueError, KeyError, TypeError) as err:
            before = read_json(self._layout.note("shipped"))
            error = f"{type(err).__name__}: {err}"
            write_json(self._layout.note("shipped"), {**to_json(UploadState()), **before, "error": error})
            raise
        write_json(self._layout.note("shipped"), to_json(uploaded))

    def _upload_whole(self, uploader: Uploader, present: RunState, began: float, *, final: bool) -> UploadState:
        """Upload complete files, and snapshots of checkpoints that never settle."""
        complete = self._completeness.complete
        self._offered = self._completeness.ready
        if final or not self._completeness.restless:
            return uploader.upload(present, complete, began, final=final)
        restless = self._completeness.restless
        still = min(_STILL_SECONDS, self._machine.sample_every / 5)
        with take_snapshot(self._layout, self._scan(), restless, still) as snapshot:
            self._snapped |= snapshot.units
            self._tell_left_out(restless - snapshot.units)
            return uploader.upload(present, complete, began, final=False, snapshot=snapshot)

    def _tell_left_out(self, units: frozenset[str]) -> None:
        """Log once for each checkpoint that can't be uploaded, and why."""
        for unit in sorted(unit for unit in units - self._told if (self._layout.results / unit).exists()):
            self._log.remark(
                f"checkpoint {shown(unit)} is not in the object store: it changes whenever it is copied, or the disk "
                "has no room for a copy; write it to a temporary file and rename it"
            )
        self._told |= units

    def _open(self) -> Uploader | None:
        if self._uploader is None:
            store = open_results(self._machine)
            self._uploader = Uploader(self._layout, self._machine, store) if store else None
        return self._uploader


def followed_at(layout: Layout) -> float:
    """Return when somebody last followed the command, in Unix seconds; 0 for never."""
    return float(read_json(layout.note("followed")).get("time", 0))
