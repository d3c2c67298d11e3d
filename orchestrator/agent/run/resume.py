"""Prepares the checkpoints for an attempt: mends damaged ones, keeps the newest, or copies that of the mode before."""

from __future__ import annotations

from collections.abc import Callable

from ..base.config import TaskContext
from ..base.errors import AgentError
from ..base.layout import TaskLayout
from ..base.wire import MachineConfig
from ..nodes.agreement import MOST_CHECKPOINTS, Start
from ..nodes.meeting import Meeting
from ..results.attempt import Resumption, find_resumption, read_attempt
from ..results.checkpoint_order import CheckpointProgress, is_sound, list_checkpoints, read_progress
from ..results.copied_parts import drop_put_away, forget_copied, put_away
from ..results.kept_checkpoint import adopt_checkpoint, keep_copy, restore_kept
from ..results.listing import is_temporary
from ..results.parts import (
    Agreed,
    Hooks,
    ask_for_upload,
    complete_checkpoint,
    find_shards,
    is_without_index,
    version_of,
)
from ..results.restore import restore_checkpoint
from ..waiting.signals import Signals


def prepare_attempt(context: TaskContext, tell: Callable[[str], None], signals: Signals) -> Resumption:
    """Prepare the next attempt while the command isn't running. Failures are logged, and don't prevent the attempt.

    Raises:
        AgentError: it must continue the mode before, which has no complete checkpoint.
        OSError: that checkpoint can't be copied.
    """
    task = context.task
    put_away(task)
    last = read_attempt(task)
    if not last.began:
        return Resumption() if context.run.continues is None else _continue_mode(context, tell, signals)
    for damaged in _list_damaged(task):
        if mended := _mend(task, context.machine, damaged):
            tell(f"checkpoint {damaged.name} was truncated while it was written: {mended}")
    found = find_resumption(task, context.config)
    try:
        said = found.checkpoint and keep_copy(task, found.checkpoint, last, is_unwanted=lambda: bool(signals.stop))
    except OSError as err:
        said = f"no copy of the newest checkpoint was kept: {err}".replace("\n", ";")
    if said:
        tell(said)
    return found


def agree_on_start(context: TaskContext, own: Resumption, meeting: Meeting, hooks: Hooks) -> Resumption:
    """Wait for the task's other machines; return what all resume from, after all of it was copied to this machine.

    Raises:
        GatheringError: the machines didn't meet.
        OSError: the other machines' parts can't be copied.
    """
    task = context.task
    names = [] if own.is_first else [each.name for each in list_checkpoints(task.checkpoints)[:MOST_CHECKPOINTS]]
    machines = len(context.run.addresses)
    shards, lacks = find_shards(task, context.machine, names, machines)
    start = Start(
        can_resume=own.can_resume,
        checkpoints=tuple(names),
        versions=tuple(version_of(task, name) for name in names),
        without_index=tuple(name for name in names if is_without_index(task, name)),
        shards=tuple(shards),
        lacks=tuple(lacks),
        rank=context.machine.rank,
    )
    agreed = meeting.gather(start)
    name = agreed.checkpoints[0] if agreed.checkpoints else ""
    if hooks.is_unwanted():
        return own
    if not name:
        drop_put_away(task)
        return own.replace(can_resume=agreed.can_resume, checkpoint=own.checkpoint if agreed.can_resume else None)
    if name in names:
        ask_for_upload(task, name)
    whole = Agreed(name, dict(agreed.holders), machines)
    complete_checkpoint(task, context.machine, whole, hooks)
    meeting.start_together()
    checkpoint = read_progress(task.checkpoints / name)
    is_first = own.is_first and not agreed.can_resume
    return own.replace(can_resume=agreed.can_resume, checkpoint=checkpoint, is_first=is_first)


def _continue_mode(context: TaskContext, tell: Callable[[str], None], signals: Signals) -> Resumption:
    """Copy the newest checkpoint of the same task in the mode before, to resume the first attempt from it."""
    before = context.layout.task("/".join(filter(None, (context.run.continues, context.config.name))))
    # What other machines have written, they copy themselves.
    forget_copied(before)
    found = list_checkpoints(before.checkpoints)
    if not found and context.machine.rank:
        return Resumption()
    if not found:
        raise AgentError(
            "the mode before has no complete checkpoint to continue from", fix="start without --continue to begin anew"
        )
    if adopt_checkpoint(before, context.task, found[0].name, is_unwanted=lambda: bool(signals.stop)):
        tell(f"continuing from checkpoint {found[0].label} of the mode before")
    return Resumption(can_resume=True, checkpoint=found[0], had=(found[0],), is_first=False)


def _list_damaged(task: TaskLayout) -> list[CheckpointProgress]:
    """List the checkpoints that are incomplete by their formats, or empty."""
    try:
        paths = sorted(path for path in task.checkpoints.iterdir() if not is_temporary(path.name))
    except OSError:
        # A command may remove the folder, or replace it by a file.
        return []
    found = [read_progress(path) for path in paths]
    return [each for each in found if each and _is_damaged(task, each)]


def _is_damaged(task: TaskLayout, each: CheckpointProgress) -> bool:
    return not each.bytes or is_sound(task.checkpoints / each.name) is False


def _mend(task: TaskLayout, machine: MachineConfig, damaged: CheckpointProgress) -> str:
    """Restore a checkpoint from the object store or from the kept copy; return what was done."""
    try:
        if restore_checkpoint(task, machine, damaged.name):
            # The store may have only the truncated version, too.
            restored = read_progress(task.checkpoints / damaged.name)
            if restored and not _is_damaged(task, restored):
                return "restored from the object store"
        return "restored from the kept copy" if restore_kept(task, damaged) else ""
    except (OSError, AgentError) as err:
        return f"it can't be restored: {err}".replace("\n", ";")
