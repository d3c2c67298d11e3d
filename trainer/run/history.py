"""Brings a run's history to the main process: torchrun may restart the processes with rank 0 on another machine."""

import os
from pathlib import Path
from typing import Any

from trainer.group.distributed import ProcessGroup
from trainer.report.status import MetricsLog, StatusFile


def collect_history(
    log: MetricsLog, group: ProcessGroup, *, is_local_main: bool, step: int, validated_at: int
) -> list[dict[str, Any]]:
    """Return the rows that a run resumed at this point keeps, from the machine that has most of them. Collective.

    Args:
        log: this machine's metrics.jsonl, which may lack the newest rows, or all.
        group: all processes.
        is_local_main: whether this process reads for its machine.
        step: the resumed state's number of steps.
        validated_at: the step of its last validation.
    """
    rows = log.rows_before(step=step, validated_at=validated_at) if is_local_main else []
    counts = group.all_gather(len(rows))
    longest = counts.index(max(counts))
    return rows if longest == 0 else group.broadcast_from(longest, lambda: rows)


def drop_former_files(log: MetricsLog, status_file: StatusFile, group: ProcessGroup, *, is_local_main: bool) -> None:
    """Delete the history of machines that had the main process before; the main process's own is complete. Collective.

    Else a run's results would have the older half of the history in the place of the whole.
    """
    paths = [log.path, status_file.path]
    here = [_identity(path) for path in paths]
    at_main = group.broadcast_from_main(lambda: here)
    if not is_local_main or group.is_main:
        return
    for path, ours, mains in zip(paths, here, at_main, strict=True):
        if ours != mains:
            path.unlink(missing_ok=True)


def _identity(path: Path) -> tuple[int, int, int] | None:
    """Return what a file has in common with itself on a shared disk; the open makes NFS ask its server."""
    try:
        with path.open("rb") as stream:
            status = os.fstat(stream.fileno())
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns
