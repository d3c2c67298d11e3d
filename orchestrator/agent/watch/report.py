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
from ..base.files import read_json
from ..base.layout import Layout
from ..base.parse import read_machine_config
from ..base.wire import DEPTH, MachineReport, instant, to_json
from ..code.releases import code_hash

_PROGRESS_LIMIT_BYTES = 1 << 16
_WHOLE = 1 << 63


def execute(layout: Layout) -> int:
    """Print the report."""
    sys.stdout.write(json.dumps(to_json(make_report(layout))) + "\n")
    return 0


def make_report(layout: Layout) -> MachineReport:
    """Build the report from files on disk, without waiting for anything."""
    machine = read_machine_config(layout)
    disk = shutil.disk_usage(layout.root)
    return MachineReport(
        machine=machine.machine,
        run=machine.run,
        now=time.time(),
        created=machine.created,
        deadline_at=machine.deadline_at,
        usd_per_hour=machine.usd_per_hour,
        heartbeat=_instant(layout.note("heartbeat"), "time"),
        code=code_hash(layout),
        log_bytes=size_of(layout.log_file),
        disk_free_bytes=disk.free,
        disk_total_bytes=disk.total,
        zstd=shutil.which("zstd") is not None,
        command=state.observe(layout).command,
        progress=_note(layout.output / "status.json"),
        sample=_note(layout.note("sample")),
        checkpoint=_note(layout.note("checkpoint")),
        upload=_note(layout.note("shipped")),
        notice=_instant(layout.note("spot"), "notice"),
        advanced=max(
            _changed(layout.log_file),
            _changed(layout.output / "status.json"),
            _instant(layout.note("checkpoint"), "written"),
        ),
        anew=_note(layout.fresh_start_file),
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
