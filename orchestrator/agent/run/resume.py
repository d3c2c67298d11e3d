"""Prepares the checkpoints for an attempt: restores damaged ones, and keeps a copy of the newest."""

from __future__ import annotations

from collections.abc import Callable

from ..base.errors import AgentError
from ..base.layout import Layout
from ..base.wire import MachineConfig, RunConfig
from ..results.attempt import Resumption, find_resumption, read_attempt
from ..results.checkpoint_order import CheckpointProgress, is_sound, read_progress
from ..results.kept_checkpoint import keep_copy, restore_kept
from ..results.listing import is_temporary
from ..results.restore import restore_checkpoint
from .signals import Signals


def prepare_attempt(
    layout: Layout, machine: MachineConfig, config: RunConfig, tell: Callable[[str], None], signals: Signals
) -> Resumption:
    """Prepare the next attempt while the command isn't running. Failures are logged, and don't prevent the attempt."""
    last = read_attempt(layout)
    if not last.began:
        return Resumption()
    for damaged in _list_damaged(layout):
        if mended := _mend(layout, machine, damaged):
            tell(f"checkpoint {damaged.name} was truncated while it was written: {mended}")
    found = find_resumption(layout, config)
    try:
        said = found.checkpoint and keep_copy(layout, found.checkpoint, last, is_unwanted=lambda: bool(signals.stop))
    except OSError as err:
        said = f"no copy of the newest checkpoint was kept: {err}".replace("\n", ";")
    if said:
        tell(said)
    return found


def _list_damaged(layout: Layout) -> list[CheckpointProgress]:
    """List the checkpoints that are incomplete by their formats, or empty."""
    try:
        paths = sorted(path for path in layout.checkpoints.iterdir() if not is_temporary(path.name))
    except OSError:
        # A command may remove the folder, or replace it by a file.
        return []
    found = [read_progress(path) for path in paths]
    return [each for each in found if each and _is_damaged(layout, each)]


def _is_damaged(layout: Layout, each: CheckpointProgress) -> bool:
    return not each.bytes or is_sound(layout.checkpoints / each.name) is False


def _mend(layout: Layout, machine: MachineConfig, damaged: CheckpointProgress) -> str:
    """Restore a checkpoint from the object store or from the kept copy; return what was done."""
    try:
        if restore_checkpoint(layout, machine, damaged.name):
            # The store may have only the truncated version, too.
            restored = read_progress(layout.checkpoints / damaged.name)
            if restored and not _is_damaged(layout, restored):
                return "restored from the object store"
        return "restored from the kept copy" if restore_kept(layout, damaged) else ""
    except (OSError, AgentError) as err:
        return f"it can't be restored: {err}".replace("\n", ";")
