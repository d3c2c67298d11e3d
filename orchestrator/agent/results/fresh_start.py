"""Detects a command that should have resumed but started over: its first checkpoint is behind the previous one."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable

from ..base.files import write_json
from ..base.layout import TaskLayout
from ..base.record import to_json
from ..base.runlog import RunLog
from ..base.wire import FreshStart
from .attempt import Attempt, read_attempt
from .checkpoint_order import CheckpointProgress, read_progress
from .kept_checkpoint import find_kept_checkpoint
from .listing import ResultEntry


class FreshStarts:
    """Compares an attempt's first checkpoint with the checkpoints before it, once per attempt."""

    def __init__(self, task: TaskLayout, log: RunLog) -> None:
        self._task = task
        self._log = log
        self._judged = 0.0
        self._looked: dict[str, int] = {}

    def look(self, found: Iterable[ResultEntry], complete: Collection[str]) -> None:
        """Check this task's complete checkpoints among the results' files."""
        attempt = read_attempt(self._task)
        if not attempt.had or attempt.began == self._judged:
            return
        newer: dict[str, int] = {}
        for one in found:
            if one.unit in complete and self._task.owns(one.unit) and one.mtime_ns / 1e9 > attempt.began:
                newer[one.unit] = max(newer.get(one.unit, 0), one.mtime_ns)
        # Done once, because reading may take a while, and an unclear case won't become clearer.
        fresh = [unit for unit, mtime_ns in newer.items() if self._looked.get(unit) != mtime_ns]
        self._looked = newer
        written = filter(None, (read_progress(self._task.machine.results / unit) for unit in fresh))
        for each in sorted(written, key=lambda each: each.written):
            before = _before(attempt, each)
            is_behind = each.is_behind(before) if before else None
            if before is not None and is_behind is not None:
                self._judged = attempt.began
                if is_behind:
                    self._tell(each, before)
                return

    def _tell(self, first: CheckpointProgress, before: CheckpointProgress) -> None:
        kept = find_kept_checkpoint(self._task)
        anew = FreshStart(
            name=first.name,
            had=before.name,
            step=first.step,
            had_step=before.step,
            bytes=first.bytes,
            had_bytes=before.bytes,
            kept=kept.name if kept else "",
        )
        write_json(self._task.fresh_start_file, to_json(anew))
        self._log.remark(f"it seems to have started over: {_compare(first, before)}")
        resume = "give the job a `resume` (docs/your-script.md), and `kedge start --reread`"
        if kept is None:
            self._log.remark(f"to change that: `kedge stop`, {resume}")
            return
        source, target = self._task.kept / kept.name, self._task.checkpoints
        copy = shlex.join(["cp", "-r", str(source), f"{target}/"])
        self._log.remark(
            f"checkpoint {kept.label} is kept. to go back to it: `kedge stop`, `kedge exec -- {copy}`, {resume}"
        )


def _before(attempt: Attempt, each: CheckpointProgress) -> CheckpointProgress | None:
    return next((one for one in attempt.had if one.series == each.series), None)


def _compare(first: CheckpointProgress, before: CheckpointProgress) -> str:
    steps = (first.step, before.step) if first.kind == before.kind else (None, None)
    if steps[0] is not None and steps[1] is not None and steps[0] < steps[1]:
        return f"its first checkpoint, {first.name}, is of step {first.step}; there was one of step {before.step}"
    return f"its first checkpoint, {first.name}, has {first.bytes:,} bytes; the last one had {before.bytes:,}"
