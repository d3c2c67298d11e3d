"""`report`: prints the machine's full status as one line of JSON."""

from __future__ import annotations

import json
import math
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from ..base import state
from ..base.config import earlier_modes, list_tasks, of_one_mode, present_log, present_mode
from ..base.files import read_json
from ..base.layout import Layout, TaskLayout
from ..base.parse import read_machine_config
from ..base.record import instant, to_json
from ..base.wire import DEPTH, MachineReport, TaskReport
from ..code.releases import code_hash

_PROGRESS_LIMIT_BYTES = 1 << 16
_WHOLE = 1 << 63


def execute(layout: Layout) -> int:
    """Print the report."""
    sys.stdout.write(json.dumps(to_json(make_report(layout))) + "\n")
    return 0


def make_report(layout: Layout) -> MachineReport:
    """Build the report from files on disk, without waiting for anything."""
    return of_one_mode(layout, lambda: _read_report(layout))


def _read_report(layout: Layout) -> MachineReport:
    machine = read_machine_config(layout)
    disk = shutil.disk_usage(layout.root)
    tasks = {name: _report_task(task) for name, task in list_tasks(layout).items()}
    # What is said of the machine's only task stands in the report itself.
    first = tasks.get("") or TaskReport()
    sequence, mode = present_mode(layout)
    return MachineReport(
        machine=machine.machine,
        run=machine.run,
        now=time.time(),
        created=machine.created,
        deadline_at=machine.deadline_at,
        usd_per_hour=machine.usd_per_hour,
        heartbeat=_instant(layout.note("heartbeat"), "time"),
        code=code_hash(layout),
        log_bytes=size_of(present_log(layout)),
        disk_free_bytes=disk.free,
        disk_total_bytes=disk.total,
        zstd=shutil.which("zstd") is not None,
        command=state.of_run(layout, (each.command for each in tasks.values())),
        progress=first.progress,
        sample=_note(layout.note("sample")),
        checkpoint=first.checkpoint,
        upload=_note(layout.note("shipped")),
        notice=_instant(layout.note("spot"), "notice"),
        advanced=first.advanced,
        anew=first.anew,
        tasks={name: task for name, task in tasks.items() if name},
        sequence=sequence,
        mode=mode,
        earlier=earlier_modes(layout),
        extends=machine.can_extend,
        progress_at=first.progress_at,
    )


def _report_task(task: TaskLayout) -> TaskReport:
    return TaskReport(
        command=state.observe(task).command,
        log_bytes=size_of(task.log_file),
        progress=_note(task.output / "status.json"),
        checkpoint=_note(task.note("checkpoint")),
        advanced=max(
            _changed(task.log_file),
            _changed(task.output / "status.json"),
            _instant(task.note("checkpoint"), "written"),
        ),
        anew=_note(task.fresh_start_file),
        progress_at=_changed(task.output / "status.json"),
    )


def size_of(path: Path) -> int:
    """Return a file's size; 0 if it doesn't exist."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _changed(path: Path) -> float:
    try:
        return instant(path.stat().st_mtime)
    except OSError:
        return 0.0


def _instant(path: Path, name: str) -> float:
    found = read_json(path).get(name, 0.0)
    return instant(found) if isinstance(found, int | float) else 0.0


def _note(path: Path) -> dict[str, Any] | None:
    return _to_strict_json(read_json(path, _PROGRESS_LIMIT_BYTES)) or None


def _to_strict_json(content: Any, depth: int = DEPTH - 1) -> Any:
    """Replace values that strict JSON or the laptop doesn't accept, because a command may write anything.

    These are NaN, infinity, lone surrogates, integers beyond 64 bits, and values that are nested too deep.
    """
    if isinstance(content, dict | list):
        return _to_strict_items(content, depth - 1) if depth else None
    if isinstance(content, str):
        return content.encode(errors="replace").decode()
    if isinstance(content, float) and not math.isfinite(content):
        return None
    if isinstance(content, int) and abs(content) > _WHOLE:
        return None
    return content


def _to_strict_items(content: dict[str, Any] | list[Any], depth: int) -> Any:
    if isinstance(content, list):
        return [_to_strict_json(item, depth) for item in content]
    return {_to_strict_json(name): _to_strict_json(item, depth) for name, item in content.items()}
