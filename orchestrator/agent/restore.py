"""Bring a run's results back from the object store, before its first attempt on a new machine."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .files import read_json, write_json
from .layout import Layout
from .parse import clean_relative
from .results import APPENDED
from .runlog import RunLog
from .shipping import blob_key, read_manifest, unit_of
from .store import ObjectStore, open_store
from .wire import MachineConfig

_CHUNK_BYTES = 1 << 20
_DONE = {"state": "done"}
_BEGUN = {"state": "begun"}


def is_restored(layout: Layout) -> bool:
    """Say whether what the store has is here. Before that nothing may be shipped: it would be overwritten."""
    return read_json(layout.note("restored")) == _DONE


def restore(
    layout: Layout, machine: MachineConfig, log: RunLog, *, is_unwanted: Callable[[], bool] = lambda: False
) -> None:
    """Restore everything that the manifest names, checkpoints first. Does nothing the second time.

    A damaged object is skipped with a remark in the log. Cut in the middle, it goes on at the next call.

    Raises:
        AgentError: the manifest is damaged.
        OSError: the store can't be read, or the disk is full.
    """
    if is_restored(layout):
        return
    marker = layout.note("restored")
    store = open_store(machine)
    begun = read_json(marker) == _BEGUN
    if store is not None and (begun or not _has_results(layout)):
        write_json(marker, _BEGUN, durable=True)
        _restore(layout, store, log, is_unwanted)
    if not is_unwanted():
        write_json(marker, _DONE, durable=True)


def _restore(layout: Layout, store: ObjectStore, log: RunLog, is_unwanted: Callable[[], bool]) -> None:
    manifest = read_manifest(store)
    entries = sorted(manifest.get("files", ()), key=lambda entry: (not unit_of(entry["path"]), entry["path"]))
    restored = 0
    for entry in sorted(entries, key=lambda entry: "link" in entry):
        if is_unwanted():
            return
        restored += _restore_entry(layout, store, entry, log)
    if entries:
        checkpoint = manifest.get("checkpoint") or "no checkpoint"
        log.remark(f"restored {restored} of {len(entries)} files of machine {manifest['machine']}: {checkpoint}")


def _restore_entry(layout: Layout, store: ObjectStore, entry: dict[str, Any], log: RunLog) -> bool:
    target = layout.results / clean_relative(entry["path"])
    target.parent.mkdir(parents=True, exist_ok=True)
    if "link" in entry:
        with contextlib.suppress(FileExistsError):
            target.symlink_to(entry["link"])
        return True
    if _is_there(target, entry):
        return True
    return _copy(store, entry, target, log)


def _copy(store: ObjectStore, entry: dict[str, Any], target: Path, log: RunLog) -> bool:
    hashed = hashlib.sha256()
    descriptor, name = tempfile.mkstemp(prefix=f".{target.name[:64]}.", suffix=".tmp", dir=target.parent)
    temporary = Path(name)
    try:
        with open(descriptor, "wb") as stream:  # noqa: PTH123 - a descriptor, not a path
            chunk = b"\n"
            for chunk in store.get(blob_key(entry["sha256"])):
                hashed.update(chunk)
                stream.write(chunk)
            if hashed.hexdigest() != entry["sha256"]:
                log.remark(f"not restored, because the stored copy is damaged: {entry['path']}")
                return False
            if entry["path"] in APPENDED and target.exists():
                # This machine has begun its own already: it comes after.
                stream.write((b"" if chunk.endswith(b"\n") else b"\n") + target.read_bytes())
            stream.flush()
            os.fsync(descriptor)
        temporary.chmod(0o644)
        os.utime(temporary, (entry["mtime"], entry["mtime"]))
        temporary.replace(target)
    except FileNotFoundError:
        log.remark(f"not restored, because the store has lost it: {entry['path']}")
        return False
    finally:
        temporary.unlink(missing_ok=True)
    return True


def _is_there(target: Path, entry: dict[str, Any]) -> bool:
    """Say whether an earlier try has restored this file; one of ours may have grown since."""
    try:
        with target.open("rb") as stream:
            hashed = hashlib.sha256()
            left = int(entry["bytes"])
            while left and (chunk := stream.read(min(left, _CHUNK_BYTES))):
                hashed.update(chunk)
                left -= len(chunk)
            is_longer = bool(stream.read(1)) and entry["path"] not in APPENDED
    except OSError:
        return False
    return not left and not is_longer and hashed.hexdigest() == entry["sha256"]


def _has_results(layout: Layout) -> bool:
    return any(files for folder in (layout.output, layout.checkpoints) for _, _, files in os.walk(folder))
