"""Make the checkpoints ready for an attempt: mend what was cut off, and keep the newest apart."""

from __future__ import annotations

from collections.abc import Callable

from .attempt import Resumption, find_resumption, read_attempt
from .errors import AgentError
from .kept import keep_apart, put_back
from .layout import Layout
from .restore import restore_checkpoint
from .results import is_temporary
from .signals import Signals
from .standing import Standing, find_standing, is_sound
from .wire import MachineConfig, RunConfig


def prepare_attempt(
    layout: Layout, machine: MachineConfig, config: RunConfig, tell: Callable[[str], None], signals: Signals
) -> Resumption:
    """Prepare the next attempt; the command isn't at work. What fails is told, and costs nobody the attempt."""
    last = read_attempt(layout)
    if not last.began:
        return Resumption()
    for damaged in _list_damaged(layout):
        if mended := _mend(layout, machine, damaged):
            tell(f"checkpoint {damaged.name} was cut off while it was written: {mended}")
    found = find_resumption(layout, config)
    try:
        said = found.checkpoint and keep_apart(layout, found.checkpoint, last, is_unwanted=lambda: bool(signals.stop))
    except OSError as err:
        said = f"the newest checkpoint is not kept apart: {err}".replace("\n", ";")
    if said:
        tell(said)
    return found


def _list_damaged(layout: Layout) -> list[Standing]:
    """List what says itself that it isn't whole, and what is empty."""
    try:
        paths = sorted(path for path in layout.checkpoints.iterdir() if not is_temporary(path.name))
    except OSError:
        # A command may remove the folder, or put a file in its place.
        return []
    found = [find_standing(path) for path in paths]
    return [each for each in found if each and _is_damaged(layout, each)]


def _is_damaged(layout: Layout, each: Standing) -> bool:
    return not each.bytes or is_sound(layout.checkpoints / each.name) is False


def _mend(layout: Layout, machine: MachineConfig, damaged: Standing) -> str:
    """Put a whole copy in its place, from the object store or of what is kept apart; return what was done."""
    try:
        if restore_checkpoint(layout, machine, damaged.name):
            # The store has what was cut off, too, where it had no copy before.
            restored = find_standing(layout.checkpoints / damaged.name)
            if restored and not _is_damaged(layout, restored):
                return "the copy in the object store is put back"
        return "the one that was kept apart is put back" if put_back(layout, damaged) else ""
    except (OSError, AgentError) as err:
        return f"it can't be put back: {err}".replace("\n", ";")
