"""Restores a run's results from the object store, before its first attempt on a new machine.

Other machines may write to the store, too, so each entry of its manifest is validated. Invalid entries are left out,
and reported in the run's log.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ..base.files import read_json, replacing, write_json
from ..base.layout import Layout
from ..base.runlog import RunLog
from ..base.tree_rule import is_tree_path, make_folders, stays_inside
from ..base.wire import MachineConfig
from ..s3.store import ObjectStore, open_store
from .attempt import take_attempt
from .listing import APPENDED, is_left_behind
from .upload import blob_key, read_manifest, unit_of

_CHUNK_BYTES = 1 << 20
_DONE = {"state": "done"}
_BEGUN = {"state": "begun"}
_DEPTH = 200
_NO_NAME = (errno.ENAMETOOLONG, errno.EILSEQ, errno.EINVAL)
_SHA256 = re.compile("[0-9a-f]{64}")


class _UnfitError(Exception):
    """The reason why an entry of the manifest isn't restored."""


class _Entry(NamedTuple):
    """A validated entry; `link` is a link's target."""

    path: str
    bytes: int
    sha256: str
    mtime: float
    link: str


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
    store = open_store(machine)
    begun = read_json(marker) == _BEGUN
    if store is not None and (begun or not _has_results(layout)):
        write_json(marker, _BEGUN, durable=True)
        _restore(layout, store, log, is_unwanted)
    if not is_unwanted():
        write_json(marker, _DONE, durable=True)


def restore_checkpoint(layout: Layout, machine: MachineConfig, name: str) -> bool:
    """Restore one checkpoint in place of a damaged one; False if the store has no intact copy.

    Raises:
        AgentError: the manifest is damaged.
        OSError: the store can't be read, or the disk is full.
    """
    store = open_store(machine)
    if store is None:
        return False
    rows = [row for row in read_manifest(store).get("files", ()) if unit_of(str(row.get("path"))) == name]
    try:
        entries = [_parse(row) for row in rows]
        if not any(entry.bytes for entry in entries):
            return False
        here: dict[str, Path] = {}
        return all(_restore_entry(layout, store, entry, here) for entry in entries)
    except _UnfitError:
        return False


def _restore(layout: Layout, store: ObjectStore, log: RunLog, is_unwanted: Callable[[], bool]) -> None:
    manifest = read_manifest(store)
    take_attempt(layout, _attempt_in(manifest))
    rows = manifest.get("files", ())
    restored = 0
    here: dict[str, Path] = {}
    for entry in _in_order(rows, log):
        if is_unwanted():
            return
        try:
            restored += _restore_entry(layout, store, entry, here)
        except _UnfitError as err:
            _tell(log, entry.path, err)
        except OSError as err:
            if err.errno not in _NO_NAME:
                raise
            _tell(log, entry.path, _UnfitError("its name isn't valid on this disk"))
    if rows:
        checkpoint = manifest.get("checkpoint") or "no checkpoint"
        log.remark(f"restored {restored} of {len(rows)} files of machine {manifest.get('machine')}: {checkpoint}")


def _attempt_in(manifest: dict[str, Any]) -> object:
    """Return a manifest's record of attempts; an earlier agent wrote only the command's start."""
    command = manifest.get("command")
    if "attempt" in manifest or not manifest.get("checkpoint") or not isinstance(command, dict):
        return manifest.get("attempt")
    return {"began": command.get("started")}


def _in_order(rows: Iterable[dict[str, Any]], log: RunLog) -> list[_Entry]:
    """Validate the manifest's rows; order checkpoints first and links, whose targets must exist, last."""
    entries = []
    for row in rows:
        try:
            entries.append(_parse(row))
        except _UnfitError as err:
            _tell(log, row.get("path"), err)
    return sorted(
        entries,
        key=lambda entry: (bool(entry.link), not unit_of(entry.path), is_left_behind(entry.path), entry.path),
    )


def _parse(row: dict[str, Any]) -> _Entry:
    path, size, sha256 = row.get("path"), row.get("bytes"), row.get("sha256")
    mtime, link = row.get("mtime"), row.get("link", "")
    if not isinstance(path, str) or not is_tree_path(path):
        raise _UnfitError("its path leads out of the results")
    if path.count("/") > _DEPTH:
        raise _UnfitError("it lies deeper than anything that can be removed again")
    if not isinstance(link, str) or (link and not stays_inside(path, link)):
        raise _UnfitError("it is a link that leaves the results")
    if type(size) is not int or size < 0 or not isinstance(sha256, str) or not _SHA256.fullmatch(sha256):
        raise _UnfitError("its size or its checksum is invalid")
    # File systems can't store times beyond this.
    if not isinstance(mtime, int | float) or not 0 <= mtime < 1 << 40:
        raise _UnfitError("its time is invalid")
    return _Entry(path, size, sha256, mtime, link)


def _restore_entry(layout: Layout, store: ObjectStore, entry: _Entry, here: dict[str, Path]) -> bool:
    """Restore one result; `here` has the paths of contents that were already restored, and aren't downloaded again."""
    target = layout.results / entry.path
    try:
        make_folders(layout.results, entry.path)
    except NotADirectoryError as err:
        raise _UnfitError(str(err)) from err
    if entry.link:
        if not target.is_symlink() and not target.exists():
            target.symlink_to(entry.link)
        return True
    done = _is_there(target, entry) or _copy(store, entry, target, here.get(entry.sha256))
    if entry.path not in APPENDED:
        here[entry.sha256] = target
    return done


def _copy(store: ObjectStore, entry: _Entry, target: Path, source: Path | None) -> bool:
    if target.is_dir():
        raise _UnfitError("a folder is in its way")
    if entry.bytes > shutil.disk_usage(target.parent).free:
        raise _UnfitError(f"the disk has no room for its {entry.bytes:,} bytes")
    with replacing(target) as stream:
        last = b"\n"
        for last in _contents(store, entry, source):
            stream.write(last)
        if entry.path in APPENDED and target.exists():
            # This machine has already written to its own log, which is appended to the restored one.
            stream.write((b"" if last.endswith(b"\n") else b"\n") + target.read_bytes())
        stream.flush()
        os.fsync(stream.fileno())
        os.utime(stream.fileno(), (entry.mtime, entry.mtime))
    return True


def _contents(store: ObjectStore, entry: _Entry, source: Path | None) -> Iterator[bytes]:
    """Yield a content, at most the manifest's size, and raise at the end if it doesn't match the manifest."""
    hashed = hashlib.sha256()
    left = entry.bytes
    try:
        for chunk in _read(source) if source else store.get(blob_key(entry.sha256)):
            left -= len(chunk)
            if left < 0:
                break
            hashed.update(chunk)
            yield chunk
    except FileNotFoundError as err:
        raise _UnfitError("it is missing in the store") from err
    if left or hashed.hexdigest() != entry.sha256:
        raise _UnfitError("the stored copy is damaged")


def _read(path: Path) -> Iterator[bytes]:
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            yield chunk


def _is_there(target: Path, entry: _Entry) -> bool:
    """Whether an earlier call has restored this file; kedge's own logs may have grown since."""
    if target.is_symlink():
        return False
    try:
        with target.open("rb") as stream:
            hashed = hashlib.sha256()
            left = entry.bytes
            while left and (chunk := stream.read(min(left, _CHUNK_BYTES))):
                hashed.update(chunk)
                left -= len(chunk)
            is_longer = bool(stream.read(1)) and entry.path not in APPENDED
    except OSError:
        return False
    return not left and not is_longer and hashed.hexdigest() == entry.sha256


def _has_results(layout: Layout) -> bool:
    return any(files for folder in (layout.output, layout.checkpoints) for _, _, files in os.walk(folder))


def _tell(log: RunLog, path: object, why: _UnfitError) -> None:
    shown = str(path).encode(errors="backslashreplace").decode().replace("\0", "\\0").replace("\n", "\\n")
    log.remark(f"not restored, because {why}: {shown[:500]}")
