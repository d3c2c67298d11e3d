"""Brings a data set in the bucket to the state of a folder, in few bytes and requests."""

from __future__ import annotations

import hashlib
import logging
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.adapters.store.object_store import ObjectStore, StoredObject
from orchestrator.adapters.store.transfer import TransferProgress, in_parallel
from orchestrator.adapters.sync.data.compare import extras, find_unchanged
from orchestrator.adapters.sync.data.index import FileEntry, Index, decode_index
from orchestrator.adapters.sync.data.memory import Details, Memory, Seen
from orchestrator.adapters.sync.data.objects import NO_INDEX, DataSetObjects
from orchestrator.adapters.sync.data.packing import SHARD_BYTES, plan_shards
from orchestrator.adapters.sync.data.scan import scan
from orchestrator.adapters.sync.data.sending import Sending
from orchestrator.adapters.sync.snapshot import LocalFile, Snapshot
from orchestrator.core.errors import BadRequestError
from orchestrator.core.ports import Clock
from orchestrator.core.transfers import Progress, StagedData

if TYPE_CHECKING:
    from orchestrator.core.job import DataMount

_log = logging.getLogger(__name__)

# Each worker holds a shard in memory, twice while it passes it to the SDK.
_WORKERS = 4
# An unused shard may belong to a transfer that is still running, or was interrupted and will resume.
_ABANDONED = timedelta(days=2)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def data_name(source: str, target: str = "") -> str:
    """Return the name of a source's data set, unique for each path.

    Args:
        source: a path on the laptop.
        target: its name in the job; default: the source's name.
    """
    path = os.path.abspath(source)  # noqa: PTH100 - a link to the data is a name of its own
    word = re.sub(r"[^A-Za-z0-9]+", "-", target or Path(path).name).strip("-")
    return f"{word or 'data'}-{hashlib.sha256(os.fsencode(path)).hexdigest()[:8]}"


class DataSets:
    """Implements `core.ports.DataStage`: the data sets of an object store, each under `<name>/`.

    Args:
        store: the prefix of all data sets; nothing is contacted.
        memory: a folder for the last known state of each data set.
        clock: tells the age of files.
        shard_bytes: the size of a shard; machines can read shards of any size.
    """

    def __init__(self, store: ObjectStore, *, memory: Path, clock: Clock, shard_bytes: int = SHARD_BYTES) -> None:
        self._store = store
        self._memory_folder = memory
        self._clock = clock
        self._shard_bytes = shard_bytes

    def put_data(self, mount: DataMount, progress: Progress, *, delete: bool = False) -> StagedData:
        """Bring the bucket's copy of a mount to the source's state; see `put`."""
        name = data_name(mount.source, mount.target)
        return self.put(mount.source, progress, name=name, places=mount.follows, delete=delete)

    def put(
        self, source: str, progress: Progress, *, name: str = "", places: Sequence[str] = (), delete: bool = False
    ) -> StagedData:
        """Bring `<name>/` to the state of a folder or a file.

        This takes one request if nothing has changed. After an interruption, a repeated call sends only the rest.

        Args:
            source: on the laptop.
            progress: called as shards arrive.
            name: default: `data_name` of the source.
            places: folders outside the source to which its links may lead; the targets are sent in place of the links.
            delete: also remove what the folder doesn't have.

        Raises:
            BadRequestError: the source doesn't exist or can't be read, a link leads elsewhere, or the name is invalid.
            ConflictError: another process writes to the same data set.
            KedgeError: a file changes while it is being sent, or the store can't be used.
        """
        name = _checked(name or data_name(source))
        found = scan(Path(source), self._clock, places)
        objects, memory = DataSetObjects(self._store, name), self._memory(name)
        seen = memory.seen()
        stored = objects.read_index(seen.etag)
        if stored is None and _is_the_same(seen, found, delete=delete):
            return StagedData(name=name, index=seen.index)
        update = _Update(objects, memory, found, self._clock.now(), self._shard_bytes)
        return StagedData(name=name, index=update.carry_out(stored, seen, progress, delete=delete))

    def remove_data(self, mount: DataMount) -> None:
        """Remove the bucket's copy of a mount's source, if there is one.

        Raises:
            KedgeError: the store can't be used.
        """
        name = data_name(mount.source, mount.target)
        self._store.remove(f"{name}/")
        self._memory(name).forget()

    def _memory(self, name: str) -> Memory:
        return Memory(self._memory_folder / f"{self._store.name}-{name}")


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise BadRequestError(
            f"{name!r} can't be a data set's name", fix="use letters, digits, `.`, `_` and `-`, as in `imagenet-train`"
        )
    return name


def _is_the_same(seen: Seen, found: Snapshot, *, delete: bool) -> bool:
    return bool(seen.digest and seen.index) and seen.digest == found.digest() and not (delete and seen.has_extras)


@dataclass(frozen=True, slots=True)
class _Update:
    """An update of one data set from the bucket's state to the snapshot."""

    objects: DataSetObjects
    memory: Memory
    found: Snapshot
    now: datetime
    shard_bytes: int

    def carry_out(self, stored: StoredObject | None, seen: Seen, progress: Progress, *, delete: bool) -> str:
        """Send what is missing, and return the SHA-256 of the new index."""
        base_raw, base, details = self._base(stored, seen)
        kept = find_unchanged(self.found.files.values(), base, details.signatures, _at_once)
        changed = [file for path, file in self.found.files.items() if path not in kept]
        present = self.objects.list_shards() if any(file.bytes for file in changed) else {}
        sending = self._send(changed, present, progress)
        left = set() if delete or self.found.is_file or base.is_file else self._left(base_raw, base, seen)
        index = self._index({**kept, **sending.entries(changed)}, base, left, sending.shards)
        content = index.encode()
        etag = base_raw.etag
        if index != base or not etag:
            etag = self.objects.write_index(content, base_raw)
        known = Seen(
            etag=etag,
            index=hashlib.sha256(content).hexdigest(),
            digest=self.found.digest(),
            has_extras=bool(left),
        )
        self.memory.remember(known, content, self.found.signatures())
        self._tidy(base, index, present)
        return known.index

    def _base(self, stored: StoredObject | None, seen: Seen) -> tuple[StoredObject, Index, Details]:
        """Return the bucket's index object and index, and the remembered details if they are still valid."""
        if stored is None and (details := self.memory.details()) is not None:
            return replace(NO_INDEX, etag=seen.etag), details.index, details
        stored = stored or self.objects.read_index("") or NO_INDEX
        return stored, decode_index(stored.content) if stored.etag else Index(), Details()

    def _left(self, base_raw: StoredObject, base: Index, seen: Seen) -> set[str]:
        """Return paths to keep that the folder lacks, but none that others wrote, because machines trust the index."""
        left = extras(self.found, base)
        if not base_raw.content or hashlib.sha256(base_raw.content).hexdigest() == seen.index:
            return left
        if left:
            _log.warning(
                "%s was written elsewhere: %d of its paths aren't here, and are left out (%r)",
                self.objects.where,
                len(left),
                min(left),
            )
        return set()

    def _send(self, changed: Sequence[LocalFile], present: Mapping[str, datetime], progress: Progress) -> Sending:
        counted = TransferProgress(progress, sum(file.bytes for file in changed))
        sending = Sending(self.objects, present, counted)
        in_parallel(sending.send, plan_shards(changed, self.shard_bytes), counted, workers=_WORKERS)
        return sending

    def _index(self, files: Mapping[str, FileEntry], base: Index, left: set[str], sent: Mapping[str, int]) -> Index:
        files = {**{path: entry for path, entry in base.files.items() if path in left}, **files}
        sizes = {**base.shards, **sent}
        return Index(
            is_file=self.found.is_file,
            files=files,
            links={**{path: to for path, to in base.links.items() if path in left}, **self.found.links},
            folders=frozenset(base.folders & left | self.found.folders),
            shards={piece.shard: sizes[piece.shard] for entry in files.values() for piece in entry.pieces},
        )

    def _tidy(self, base: Index, index: Index, present: Mapping[str, datetime]) -> None:
        """Delete unused shards; a machine that is still reading the old index then takes the new one."""
        abandoned = {name for name, written in present.items() if self.now - written > _ABANDONED}
        if gone := (abandoned | set(base.shards)) - set(index.shards):
            self.objects.delete_shards(sorted(gone))


def _at_once(work: Callable[[LocalFile], None], files: Sequence[LocalFile]) -> None:
    in_parallel(work, files, TransferProgress(lambda _done, _total: None, 0), workers=_WORKERS)
