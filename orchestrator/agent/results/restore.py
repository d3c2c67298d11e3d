"""Restores a run's results from the object store, before its first attempt on a new machine.

Other machines may write to the store, too, so each entry of its manifest is validated. Invalid entries are left out,
and reported in the run's log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from ..base.config import earlier_modes, parse_modes, write_earlier_modes
from ..base.files import read_json, write_json
from ..base.layout import Layout, TaskLayout
from ..base.runlog import RunLog
from ..base.wire import MachineConfig
from ..s3.store import ObjectStore, open_results
from .attempt import take_attempt
from .entries import Entry, UnfitError, parse_entry, restore_entry
from .listing import is_appended, is_left_behind, is_task_key, scan, unit_of
from .upload import read_manifest

_DONE = {"state": "done"}
_BEGUN = {"state": "begun"}


def is_restored(layout: Layout) -> bool:
    """Whether the store's results are here. Before that nothing may be uploaded, because it would replace them."""
    return read_json(layout.note("restored")) == _DONE


def restore(
    layout: Layout, machine: MachineConfig, log: RunLog, *, is_unwanted: Callable[[], bool] = lambda: False
) -> None:
    """Restore everything in the manifest, checkpoints first. Does nothing the second time.

    A damaged object is skipped with a line in the log. After an interruption the next call continues.

    Raises:
        AgentError: the manifest is damaged.
        OSError: the store can't be read, or the disk is full.
    """
    if is_restored(layout):
        return
    marker = layout.note("restored")
    store = open_results(machine)
    begun = read_json(marker) == _BEGUN
    if store is not None and (begun or not _has_results(layout)):
        write_json(marker, _BEGUN, durable=True)
        _restore(layout, store, log, is_unwanted)
    if not is_unwanted():
        write_json(marker, _DONE, durable=True)


def restore_checkpoint(task: TaskLayout, machine: MachineConfig, name: str) -> bool:
    """Restore one of a task's checkpoints in place of a damaged one; False if the store has no intact copy.

    Raises:
        AgentError: the manifest is damaged.
        OSError: the store can't be read, or the disk is full.
    """
    store = open_results(machine)
    if store is None:
        return False
    unit = (task.checkpoints / name).relative_to(task.machine.results).as_posix()
    rows = [row for row in read_manifest(store).get("files", ()) if unit_of(str(row.get("path"))) == unit]
    try:
        entries = [parse_entry(row) for row in rows]
        if not any(entry.bytes for entry in entries):
            return False
        here: dict[str, Path] = {}
        return all(restore_entry(task.machine, store, entry, here) for entry in entries)
    except UnfitError:
        return False


def _restore(layout: Layout, store: ObjectStore, log: RunLog, is_unwanted: Callable[[], bool]) -> None:
    manifest = read_manifest(store)
    _take_attempts(layout, manifest)
    if not earlier_modes(layout):
        write_earlier_modes(layout, parse_modes(manifest.get("earlier")))
    rows = manifest.get("files", ())
    restored = 0
    here: dict[str, Path] = {}
    for entry in _in_order(rows, log):
        if is_unwanted():
            return
        try:
            restored += restore_entry(layout, store, entry, here)
        except UnfitError as err:
            _tell(log, entry.path, err)
    if rows:
        checkpoint = manifest.get("checkpoint") or "no checkpoint"
        log.remark(f"restored {restored} of {len(rows)} files of machine {manifest.get('machine')}: {checkpoint}")


def _take_attempts(layout: Layout, manifest: dict[str, Any]) -> None:
    take_attempt(layout.task(""), _attempt_in(manifest))
    found = manifest.get("tasks")
    for key, task in found.items() if isinstance(found, dict) else ():
        if is_task_key(key) and isinstance(task, dict):
            take_attempt(layout.task(key), task.get("attempt"))


def _attempt_in(manifest: dict[str, Any]) -> object:
    """Return a manifest's record of attempts; an earlier agent wrote only the command's start."""
    command = manifest.get("command")
    if "attempt" in manifest or not manifest.get("checkpoint") or not isinstance(command, dict):
        return manifest.get("attempt")
    return {"began": command.get("started")}


def _in_order(rows: Iterable[dict[str, Any]], log: RunLog) -> list[Entry]:
    """Validate the manifest's rows; order checkpoints first and links, whose targets must exist, last."""
    entries = []
    for row in rows:
        try:
            entries.append(parse_entry(row))
        except UnfitError as err:
            _tell(log, row.get("path"), err)
    return sorted(
        entries,
        key=lambda entry: (bool(entry.link), not unit_of(entry.path), is_left_behind(entry.path), entry.path),
    )


def _has_results(layout: Layout) -> bool:
    return any(not is_appended(found.path) and not is_left_behind(found.path) for found in scan(layout.results))


def _tell(log: RunLog, path: object, why: UnfitError) -> None:
    shown = str(path).encode(errors="backslashreplace").decode().replace("\0", "\\0").replace("\n", "\\n")
    log.remark(f"not restored, because {why}: {shown[:500]}")
