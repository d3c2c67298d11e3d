"""Completes a checkpoint that several machines have written: each copies what it lacks from the others' places.

So every machine has all of it: torch.load finds on each what the first one has saved, and torch.distributed.checkpoint
finds its `.metadata` and all shards, however they are assigned this time. The laptop's half of the merge is
orchestrator/core/protocol/parts.py; tests/contract/test_parts.py compares both.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from posixpath import normpath
from typing import NamedTuple

from ..base.errors import AgentError
from ..base.files import read_json, write_json
from ..base.layout import Layout, TaskLayout
from ..base.tree_rule import make_folders, upper_folders
from ..base.wire import MachineConfig
from ..s3.store import ObjectStore, open_place
from .checkpoint_formats import DCP_SHARD, list_shards
from .checkpoint_order import is_sound, list_files
from .copied_parts import CopiedPart, drop_put_away, record_copied, take_back
from .entries import Entry, UnfitError, explain, parse_entry, restore_entry
from .listing import is_temporary, is_utf8, unit_of
from .upload import read_manifest

_MOST_SECONDS = 600.0
"""How long to wait for parts: not longer than torchrun waits for a machine that is late."""
_SHARE = 0.1
"""At most this share of the machine's lifetime."""
_AGAIN_SECONDS = 1.0
_DIGITS = re.compile(r"\d+")
_AWAITED = "awaited"


class Hooks(NamedTuple):
    """The runner, as a completion needs it.

    Attributes:
        tell: adds a line to the log.
        wait: turns the state to waiting for what the text says.
        is_unwanted: whether the attempt is over already.
    """

    tell: Callable[[str], None]
    wait: Callable[[str], None]
    is_unwanted: Callable[[], bool]


class Agreed(NamedTuple):
    """The checkpoint that machines resume from.

    Attributes:
        name: its file or folder.
        holders: the machines that have a part of it, by rank, with the versions of their parts.
        machines: how many the run has; those that aren't there now may have parts, too.
    """

    name: str
    holders: Mapping[int, str]
    machines: int


def version_of(task: TaskLayout, name: str) -> str:
    """Return a text that changes with this machine's part of a checkpoint, as `complete_checkpoint` compares it."""
    rows = []
    for path in _belonging(task, name):
        for file in list_files(path) if is_sound(path) is not False else ():
            status = file.stat()
            rows.append((file.relative_to(task.machine.results).as_posix(), status.st_size, status.st_mtime_ns / 1e9))
    return _digest(row for row in rows if is_utf8(row[0]))


def is_without_index(task: TaskLayout, name: str) -> bool:
    """Whether this machine has shards of torch.distributed.checkpoint, but not the `.metadata` that is written last."""
    folder = task.checkpoints / name
    return not (folder / ".metadata").exists() and any(file.suffix == DCP_SHARD for file in list_files(folder))


def find_shards(
    task: TaskLayout, machine: MachineConfig, names: Sequence[str], machines: int
) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    """Return which files this machine has of each of some sharded checkpoints, and which are neither here nor stored.

    Without a store, or if it can't be read now, nothing counts as lacking.
    """
    folders = {name: task.checkpoints / name for name in names}
    here = {name: {file.name for file in list_files(folder)} for name, folder in folders.items()}
    needed = {name: list_shards(folder) for name, folder in folders.items()}
    missing = {name: needed[name] - here[name] for name in names}
    stored = _list_stored(machine, machines) if any(missing.values()) else None
    shards = [tuple(sorted(here[name])) if needed[name] or is_without_index(task, name) else () for name in names]
    if stored is None:
        return shards, []
    lacking = ({each for each in missing[name] if f"{_unit(task, name)}/{each}" not in stored} for name in names)
    return shards, [tuple(sorted(each)) for each in lacking]


def _list_stored(machine: MachineConfig, machines: int) -> set[str] | None:
    """List what the others have uploaded; None if that isn't known."""
    stores = _open_places(machine, machines)
    try:
        rows = [row for store in stores.values() for row in read_manifest(store).get("files", ())]
    except (OSError, AgentError):
        return None
    return {str(row.get("path")) for row in rows} if stores else None


def ask_for_upload(task: TaskLayout, name: str) -> None:
    """Ask the machine's watch to upload its part of a checkpoint soon, because others wait for it."""
    write_json(task.note(_AWAITED), {"unit": _unit(task, name), "time": time.time()})


def read_awaited(task: TaskLayout) -> tuple[str, float]:
    """Return the checkpoint whose part others wait for, and since when, in Unix seconds; an empty one for none."""
    match read_json(task.note(_AWAITED)):
        case {"unit": str(unit), "time": int() | float() as since}:
            return unit, since
        case _:
            return "", 0.0


def complete_checkpoint(task: TaskLayout, machine: MachineConfig, agreed: Agreed, hooks: Hooks) -> None:
    """Copy the others' parts of a checkpoint to this machine; waits for parts that aren't uploaded yet.

    Parts that can't be had are named in the log. The machine's own files stay as they are.

    Raises:
        OSError: the store can't be read for too long, or the disk is full.
    """
    stores = _open_places(machine, agreed.machines)
    if not stores:
        return
    give_up = time.monotonic() + min(_MOST_SECONDS, _SHARE * (machine.deadline_at - machine.created))
    lists = _read_lists(task, agreed, stores, give_up, hooks)
    wanted = {
        path: (rank, entry)
        for path, (rank, entry) in choose_parts(lists).items()
        if not _exists(task.machine.results / path)
    }
    record_copied(task, {path: _as_copied(each) for path, (_, each) in wanted.items()})
    copied: dict[int, int] = {}
    here: dict[str, Path] = {}
    for path, (rank, entry) in wanted.items():
        if hooks.is_unwanted():
            return
        try:
            _copy(task, stores[rank], entry, here, give_up)
            copied[rank] = copied.get(rank, 0) + (0 if entry.link else entry.bytes)
        except UnfitError as err:
            hooks.tell(f"checkpoint {agreed.name} lacks a part of {_name(rank)}, because {err}: {path}")
    drop_put_away(task)
    if copied:
        said = ", ".join(f"{size:,} bytes of {_name(rank)}" for rank, size in sorted(copied.items()))
        hooks.tell(f"checkpoint {agreed.name} is complete here with {said}")


def choose_parts(lists: Mapping[int, Sequence[Entry]]) -> dict[str, tuple[int, Entry]]:
    """Return the file at each path, and whose it is: of the lowest rank, if several machines have one there."""
    chosen: dict[str, tuple[int, Entry]] = {}
    folders: set[str] = set()
    for rank in sorted(lists):
        fit = [
            each
            for each in lists[rank]
            if each.path not in chosen
            and each.path not in folders
            and not any(upper in chosen for upper in upper_folders(each.path))
        ]
        for each in fit:
            chosen[each.path] = rank, each
            folders.update(upper_folders(each.path))
    return chosen


def _open_places(machine: MachineConfig, machines: int) -> dict[int, ObjectStore]:
    others = (rank for rank in range(machines) if rank != machine.rank)
    opened = ((rank, open_place(machine, rank)) for rank in others)
    return {rank: store for rank, store in opened if store is not None}


def _read_lists(
    task: TaskLayout, agreed: Agreed, stores: Mapping[int, ObjectStore], give_up: float, hooks: Hooks
) -> dict[int, list[Entry]]:
    """Read what the others have uploaded of a checkpoint, once each of them has uploaded its present version."""
    lists: dict[int, list[Entry]] = {}
    told = ""
    while True:
        problem = ""
        for rank in sorted(stores.keys() - lists.keys()):
            try:
                found = _list_parts(task, stores[rank], agreed.name)
            except (OSError, AgentError) as err:
                problem = f" ({err})".replace("\n", ";")
                continue
            if agreed.holders.get(rank, "") in ("", _version(found)):
                lists[rank] = found
        missing = sorted(stores.keys() - lists.keys())
        if not missing or hooks.is_unwanted():
            return lists
        names = ", ".join(map(_name, missing))
        if time.monotonic() > give_up:
            hooks.tell(f"checkpoint {agreed.name} lacks the parts of {names}, which were not uploaded in time{problem}")
            return lists
        if names != told:
            told = names
            text = f"waiting for the parts of checkpoint {agreed.name} that {names} uploads{problem}"
            hooks.tell(text)
            hooks.wait(text)
        time.sleep(_AGAIN_SECONDS)


def _list_parts(task: TaskLayout, store: ObjectStore, name: str) -> list[Entry]:
    found = []
    for row in read_manifest(store).get("files", ()):
        unit = unit_of(str(row.get("path")))
        if not unit or not task.owns(unit) or not _belongs(unit.rpartition("/")[2], name):
            continue
        try:
            found.append(parse_entry(row))
        except UnfitError:
            # Nothing that kedge has uploaded: such a part is missing, and its version is another one.
            continue
    # Links last, as whoever makes them does: their targets exist then.
    return sorted(found, key=lambda entry: bool(entry.link))


def _copy(task: TaskLayout, store: ObjectStore, entry: Entry, here: dict[str, Path], give_up: float) -> None:
    layout: Layout = task.machine
    while True:
        try:
            if entry.link and not _leads_inside(entry):
                raise UnfitError(f"it is a link to {entry.link}, out of the checkpoint")
            make_folders(layout.results, entry.path)
            if not take_back(task, _as_copied(entry), layout.results / entry.path):
                restore_entry(layout, store, entry, here)
        except OSError as err:
            if unfit := explain(err):
                raise unfit from err
            if time.monotonic() > give_up:
                raise
            time.sleep(_AGAIN_SECONDS)
        else:
            return


def _as_copied(entry: Entry) -> CopiedPart:
    return CopiedPart(entry.bytes, entry.mtime, entry.sha256, entry.link)


def _leads_inside(entry: Entry) -> bool:
    """Whether a link leads to another part of its checkpoint, which was copied, too."""
    here = PurePosixPath(unit_of(entry.path))
    there = PurePosixPath(unit_of(normpath(PurePosixPath(entry.path).parent / entry.link)))
    return here.parent == there.parent and _belongs(there.name, here.name)


def _belonging(task: TaskLayout, name: str) -> list[Path]:
    """List the files and folders that make up a checkpoint on this machine."""
    try:
        names = sorted(path.name for path in task.checkpoints.iterdir())
    except OSError:
        return []
    return [task.checkpoints / each for each in names if _belongs(each, name) and not is_temporary(each)]


def _belongs(other: str, name: str) -> bool:
    """Whether a file or folder is part of a checkpoint: a script may write several, with the same numbers."""
    return _DIGITS.findall(other) == _DIGITS.findall(name)


def _version(entries: Sequence[Entry]) -> str:
    return _digest((each.path, each.bytes, each.mtime) for each in entries if not each.link)


def _digest(rows: Iterable[tuple[str, int, float]]) -> str:
    plain = sorted((path, size, int(mtime)) for path, size, mtime in rows)
    return hashlib.sha256(json.dumps(plain).encode()).hexdigest()[:16]


def _unit(task: TaskLayout, name: str) -> str:
    return (task.checkpoints / name).relative_to(task.machine.results).as_posix()


def _exists(path: Path) -> bool:
    return os.path.lexists(path)


def _name(rank: int) -> str:
    return f"node {rank}" if rank else "the head"
