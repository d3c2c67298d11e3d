"""Decides what an attempt resumes from: earlier attempts of the run, on any machine, and their checkpoints."""

from __future__ import annotations

import time
from typing import Any

from ..base.files import read_json, write_json
from ..base.layout import TaskLayout
from ..base.record import Record, to_json
from ..base.wire import TaskConfig
from .checkpoint_order import CheckpointProgress, furthest, list_checkpoints

_NOTE = "attempt"


class Attempt(Record):
    """The task's last attempt.

    Attributes:
        began: its start in Unix seconds; 0 if there was none.
        had: the furthest checkpoint of each series at its start.
    """

    began: float = 0.0
    had: tuple[CheckpointProgress, ...] = ()


class Resumption(Record):
    """What the next attempt resumes from.

    Attributes:
        can_resume: whether there is something to resume from.
        checkpoint: the newest complete one; None if there is none, or no earlier attempt.
        had: the furthest checkpoint of each series.
        is_first: whether this is the task's first attempt.
    """

    can_resume: bool = False
    checkpoint: CheckpointProgress | None = None
    had: tuple[CheckpointProgress, ...] = ()
    is_first: bool = True

    def variables(self, task: TaskLayout) -> dict[str, str]:
        """Return the variables for the command; they are always set, maybe to empty values."""
        path = str(task.checkpoints / self.checkpoint.name) if self.checkpoint else ""
        return {"KEDGE_RESUME": "1" if self.can_resume else "", "KEDGE_CHECKPOINT": path}

    def command(self, config: TaskConfig) -> str:
        """Return the script to start."""
        return config.resume if self.can_resume and config.resume.strip() else config.command

    def remark(self, config: TaskConfig) -> str:
        """Return a log line with the script that is started, and why; empty for the first attempt."""
        if self.is_first:
            return ""
        if not self.can_resume:
            return "there is no complete checkpoint to resume from: starting `run` again"
        what = f"checkpoint {self.checkpoint.label}" if self.checkpoint else "an earlier attempt"
        return f"resuming from {what}: starting `{'resume' if config.resume.strip() else 'run'}`"


def find_resumption(task: TaskLayout, config: TaskConfig) -> Resumption:
    """Find what the next attempt can resume from, while the command isn't running.

    A job with a checkpoint folder resumes from a checkpoint. For any other job it is unknown where its state is, so an
    earlier attempt is enough.
    """
    if not read_attempt(task).began:
        return Resumption()
    found = list_checkpoints(task.checkpoints)
    return Resumption(
        can_resume=bool(found) or not config.checkpoints,
        checkpoint=found[0] if found else None,
        had=tuple(furthest(found)),
        is_first=False,
    )


def record_attempt(task: TaskLayout, resumption: Resumption) -> None:
    """Record that an attempt starts, and its checkpoints."""
    if not task.begin_file.exists():
        write_json(task.begin_file, {"time": time.time()}, durable=True)
    task.fresh_start_file.unlink(missing_ok=True)
    # Durable: if a power cut lost this record, the next attempt would keep no copy of a checkpoint.
    write_json(task.note(_NOTE), to_json(Attempt(time.time(), resumption.had)), durable=True)


def read_attempt(task: TaskLayout) -> Attempt:
    """Read the record of the last attempt."""
    return parse_attempt(read_json(task.note(_NOTE)))


def attempt_as_data(task: TaskLayout) -> dict[str, Any]:
    """Return the record of this machine's attempts for the run's next machine."""
    return read_json(task.note(_NOTE))


def take_attempt(task: TaskLayout, raw: object) -> None:
    """Take over another machine's record, unless an attempt has started here."""
    attempt = parse_attempt(raw if isinstance(raw, dict) else {})
    if attempt.began and not read_attempt(task).began:
        # It may be a task that doesn't start here now: one of an earlier mode, or one that is started alone later.
        task.folder.mkdir(parents=True, exist_ok=True)
        write_json(task.note(_NOTE), to_json(attempt), durable=True)


def parse_attempt(raw: dict[str, Any]) -> Attempt:
    """Parse an attempt's record; invalid parts are ignored."""
    began, had = raw.get("began"), raw.get("had")
    if not isinstance(began, int | float) or not 0 < began < 1 << 40:
        return Attempt()
    rows = had if isinstance(had, list) else []
    return Attempt(float(began), tuple(filter(None, (_parse_progress(row) for row in rows[:50]))))


def _parse_progress(row: Any) -> CheckpointProgress | None:
    match row:
        case {"name": str(name), "bytes": int(size), "written": int() | float() as written, "kind": str(kind)}:
            step, epoch = (each if isinstance(each := row.get(key), int) else None for key in ("step", "epoch"))
            return CheckpointProgress(name[:255], size, written, step, kind, epoch)
        case _:
            return None
