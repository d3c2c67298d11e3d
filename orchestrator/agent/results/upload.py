"""Uploads results to the object store: contents first, then the manifest that lists them, then pruning.

`blobs/<sha256>` are the contents; `manifest.json` is replaced last, so that an upload interrupted at any time leaves
the previous version intact.
"""

from __future__ import annotations

import hashlib
import json
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ..base.config import list_tasks, present_log
from ..base.errors import AgentError
from ..base.layout import Layout
from ..base.record import instant, to_json
from ..base.runlog import RunLog
from ..base.state import RunState
from ..base.wire import MachineConfig, UploadState
from ..s3.store import ObjectStore
from .attempt import attempt_as_data
from .checkpoint_order import is_log, is_sound, name_newest
from .complete import Version, still_newest, versions
from .listing import ResultEntry, is_appended, is_left_behind, scan_own, unit_of
from .snapshots import NO_SNAPSHOT, CheckpointSnapshot

MANIFEST = "manifest.json"
BLOBS = "blobs/"
_CHUNK_BYTES = 1 << 20

Entry = dict[str, Any]


class _ChangedError(Exception):
    """The file has changed since the scan."""


class Uploader:
    """Uploads one run's results from one machine."""

    def __init__(self, layout: Layout, machine: MachineConfig, store: ObjectStore) -> None:
        self._layout = layout
        self._machine = machine
        self._store = store
        self._log = RunLog(lambda: present_log(layout))
        self._known: dict[tuple[str, int, int, int], str] = {}
        self._told: set[str] = set()
        self._snapshot = NO_SNAPSHOT
        self._stored: set[str] = set()
        self.held_back: set[str] = set()  # checkpoints that the last upload left out, because they weren't complete

    def upload(
        self,
        present: RunState,
        complete: Mapping[str, Version],
        began: float,
        *,
        final: bool,
        snapshot: CheckpointSnapshot = NO_SNAPSHOT,
    ) -> UploadState:
        """Upload once.

        Args:
            present: the run's state, for the manifest: files that are uploaded are as new, or newer.
            complete: checkpoints to upload, if they still are this version; of other ones the store keeps its own.
            began: when this upload started, before the run's state was read; Unix seconds.
            final: the command is over, so nothing changes any more.
            snapshot: consistent copies of checkpoints that never settle.

        Raises:
            AgentError: another machine has taken the run over.
            OSError: the store or a file can't be used.
        """
        previous = self._previous()
        self._snapshot = snapshot
        self._stored = {str(entry["sha256"]) for entry in previous.values()}
        files, self.held_back = self._choose(previous, complete, final=final)
        late = {found for found in files if is_left_behind(found.path) and _key(found) not in self._known}
        entries = [entry for entry in previous.values() if unit_of(entry["path"]) in self.held_back]
        entries += self._entries([found for found in files if found not in late], previous)
        # After the upload: the command may have deleted a checkpoint meanwhile.
        on_disk, stored = self.held_back | {found.unit for found in files}, written_at(previous.values())
        kept = still_newest(stored, on_disk, written_at(entries))
        entries += [entry for entry in previous.values() if unit_of(entry["path"]) in kept]
        if late:
            # Left-behind files come last: they may be large and matter less, if the machine ends meanwhile.
            before = [previous[found.path] for found in late if found.path in previous]
            self._publish([*entries, *before], present, began)
            entries += self._entries(sorted(late, key=lambda found: found.path), previous)
        stored_before = self._store.keys(BLOBS)
        # The start, not the end of the upload: whoever waits for the command's end compares it with this time.
        uploaded = self._publish(entries, present, time.time() if final else began)
        for blob in stored_before - {blob_key(entry["sha256"]) for entry in entries}:
            self._store.delete(blob)
        return uploaded

    def _publish(self, entries: list[Entry], present: RunState, uploaded_at: float) -> UploadState:
        """Replace the manifest, after all its contents are in the store."""
        self._refuse_if_superseded(read_manifest(self._store))
        checkpoint = newest_unit(entries)
        manifest = {
            "time": uploaded_at,
            "machine": self._machine.machine,
            "created": self._machine.created,
            "checkpoint": checkpoint,
            "command": to_json(present.command),
            "attempt": attempt_as_data(self._layout.task("")),
            "tasks": {
                key: {"command": to_json(command), "attempt": attempt_as_data(self._layout.task(key))}
                for key, command in present.tasks.items()
                if key
            },
            "sequence": present.sequence,
            "mode": present.mode,
            "earlier": [to_json(each) for each in present.earlier],
            "files": entries,
        }
        self._store.write(MANIFEST, json.dumps(manifest).encode())
        return UploadState(time=uploaded_at, checkpoint=checkpoint)

    def _previous(self) -> dict[str, Entry]:
        manifest = read_manifest(self._store)
        self._refuse_if_superseded(manifest)
        return {entry["path"]: entry for entry in manifest.get("files", ())}

    def _refuse_if_superseded(self, manifest: dict[str, Any]) -> None:
        if float(manifest.get("created", 0)) > self._machine.created:
            raise AgentError(f"machine {manifest.get('machine')} has taken over this run: nothing was uploaded")

    def _choose(
        self, previous: dict[str, Entry], complete: Mapping[str, Version], *, final: bool
    ) -> tuple[list[ResultEntry], set[str]]:
        """List the files to upload, and the checkpoints whose version in the store is kept."""
        others = []
        units: dict[str, list[ResultEntry]] = {}
        for found in scan_own(self._layout):
            if found.unit in self._snapshot.units:
                continue
            if found.unfit:
                self._tell_unfit(found)
            elif found.unit:
                units.setdefault(found.unit, []).append(found)
            else:
                others.append(found)
        tasks = list_tasks(self._layout).values()
        # Nothing writes to the checkpoints of a mode that the run has left.
        settled = {unit for unit in units if final or not any(task.owns(unit) for task in tasks)}
        # A command may have begun to overwrite a checkpoint since it was found complete.
        held_back = {unit for unit in units.keys() - settled if versions(units[unit]) != {unit: complete.get(unit)}}
        held_back |= {
            unit for unit, files in units.items() if self._is_cut_off(unit, files, previous, final=unit in settled)
        }
        checkpoints = [found for unit, files in units.items() if unit not in held_back for found in files]
        return [*checkpoints, *others, *self._snapshot.files], held_back

    def _entries(self, files: list[ResultEntry], previous: dict[str, Entry]) -> list[Entry]:
        """Upload files, and return their manifest entries."""
        entries = (self._entry(found, previous.get(found.path)) for found in files)
        return [entry for entry in entries if entry]

    def _is_cut_off(self, unit: str, files: list[ResultEntry], previous: dict[str, Entry], *, final: bool) -> bool:
        """Whether a killed command has left a truncated checkpoint, and the store has a better version.

        A settled checkpoint has already been found complete, but a file of unknown format may be empty.
        """
        before = {found.path: previous[found.path] for found in files if found.path in previous}
        emptied = (path for found in files if (path := found.path) in before and not found.bytes and not found.link)
        if any(before[path]["bytes"] and not is_log(path) for path in emptied):
            return True
        return final and bool(before) and is_sound(self._layout.results / unit) is False

    def _entry(self, found: ResultEntry, previous: Entry | None) -> Entry | None:
        entry: Entry = {"path": found.path, "bytes": found.bytes, "mtime": instant(found.mtime_ns / 1e9)}
        try:
            if found.link:
                return {**entry, **self._put_link(found), "link": found.link}
            return {**entry, "sha256": self._put(found)}
        except (_ChangedError, FileNotFoundError):
            return previous

    def _put_link(self, found: ResultEntry) -> Entry:
        """Upload a link with its target's content, or none for a folder, for readers that don't support links."""
        status = (self._layout.results / found.path).stat()
        if stat.S_ISREG(status.st_mode):
            target = ResultEntry(found.path, status.st_size, status.st_mtime_ns, status.st_ino)
            return {"bytes": target.bytes, "sha256": self._put(target)}
        key = (found.path, 0, 0, 0)
        if key not in self._known:
            self._known[key] = hashlib.sha256().hexdigest()
            self._store.put(blob_key(self._known[key]), [])
        return {"sha256": self._known[key]}

    def _put(self, found: ResultEntry) -> str:
        key = _key(found)
        if key in self._known:
            return self._known[key]
        sha256 = self._digest(found)
        if sha256 not in self._stored:
            self._store.put(blob_key(sha256), self._checked(found, sha256))
            self._stored.add(sha256)
        self._known = {known: sha for known, sha in self._known.items() if known[0] != found.path}
        self._known[key] = sha256
        return sha256

    def _digest(self, found: ResultEntry) -> str:
        hashed = hashlib.sha256()
        for chunk in self._chunks(found):
            hashed.update(chunk)
        return hashed.hexdigest()

    def _checked(self, found: ResultEntry, sha256: str) -> Iterator[bytes]:
        hashed = hashlib.sha256()
        for chunk in self._chunks(found):
            hashed.update(chunk)
            yield chunk
        if hashed.hexdigest() != sha256:
            raise _ChangedError

    def _chunks(self, found: ResultEntry) -> Iterator[bytes]:
        """Read as many bytes as the file had in the scan, and check that it is still the same file."""
        left = found.bytes
        is_taken = found.unit in self._snapshot.units
        path = (self._snapshot.folder if is_taken else self._layout.results) / found.path
        with path.open("rb") as stream:
            while left and (chunk := stream.read(min(left, _CHUNK_BYTES))):
                left -= len(chunk)
                yield chunk
        if left or (not is_appended(found.path) and _is_another(path, found)):
            raise _ChangedError

    def _tell_unfit(self, found: ResultEntry) -> None:
        if found.path not in self._told:
            self._told.add(found.path)
            self._log.remark(f"not uploaded, because {found.unfit}: {found.path}")


def read_manifest(store: ObjectStore) -> dict[str, Any]:
    """Read the manifest; empty if nothing was uploaded yet.

    Raises:
        AgentError: it is damaged.
    """
    raw = store.read(MANIFEST)
    if raw is None:
        return {}
    try:
        content = json.loads(raw)
    except (ValueError, RecursionError) as err:
        raise AgentError("the store's manifest is damaged", why=str(err)) from err
    rows = content.get("files", []) if isinstance(content, dict) else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise AgentError("the store's manifest is damaged", why="it isn't a list of files")
    return dict(content)


def blob_key(sha256: str) -> str:
    """Return the key of a content."""
    return f"{BLOBS}{sha256}"


def newest_unit(entries: list[Entry]) -> str:
    """Return the name of the checkpoint that was written last, chosen as by `newest`, with its task; empty for none."""
    return shown(name_newest(written_at(entries)))


def written_at(entries: Iterable[Entry]) -> dict[str, float]:
    """Return when each checkpoint was written; without links to others, and logs."""
    written: dict[str, float] = {}
    for entry in entries:
        if (unit := unit_of(entry["path"])) and "link" not in entry and not is_log(entry["path"]):
            written[unit] = max(written.get(unit, 0.0), entry["mtime"])
    return written


def shown(unit: str) -> str:
    """Return a checkpoint's name for people: with its task, if that has a name."""
    return unit.replace("checkpoints/", "", 1)


def _key(found: ResultEntry) -> tuple[str, int, int, int]:
    """Return a key that changes when a file's content changes."""
    return (found.path, found.bytes, found.mtime_ns, found.inode)


def _is_another(path: Path, found: ResultEntry) -> bool:
    """Whether a file has changed since the scan.

    An append-only log may have grown, because it might never settle: its content up to the old size counts. Other
    files are read twice, and must be the same both times. A checkpoint's file must not have changed at all.
    """
    now = path.stat()
    has_grown = now.st_size > found.bytes and not found.unit
    is_same = now.st_ino == found.inode and (
        has_grown or (now.st_size, now.st_mtime_ns) == (found.bytes, found.mtime_ns)
    )
    return not is_same
