"""Brings a data set in the bucket to the state of a folder, in as few bytes and requests as will do."""

from __future__ import annotations

import hashlib
import logging
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.adapters.datasets.compare import extras, find_unchanged
from orchestrator.adapters.datasets.index import FileEntry, Index, decode_index
from orchestrator.adapters.datasets.memory import Details, Memory, Seen
from orchestrator.adapters.datasets.packing import SHARD_BYTES, plan_shards
from orchestrator.adapters.datasets.place import Place, StoredIndex
from orchestrator.adapters.datasets.scan import Found, LocalFile, scan
from orchestrator.adapters.datasets.sending import Sending
from orchestrator.adapters.objects.parallel import in_parallel
from orchestrator.adapters.objects.s3_folder import S3Folder
from orchestrator.adapters.objects.tally import Tally
from orchestrator.core.errors import BadRequestError
from orchestrator.core.ports import Clock, Progress, StagedData

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from orchestrator.core.job import DataMount

_log = logging.getLogger(__name__)

# Each holds a shard in memory, twice while it is handed to the SDK.
_WORKERS = 4
# A shard that no index names may belong to a transfer that is still going on, or was cut and will go on.
_ABANDONED = timedelta(days=2)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def data_name(source: str, target: str = "") -> str:
    """Name the data set of a source: the same for the same path, and another for any other.

    Args:
        source: a path on the laptop.
        target: how the job calls it; the source's own name when left out.
    """
    path = os.path.abspath(source)  # noqa: PTH100 - a link to the data is a name of its own
    word = re.sub(r"[^A-Za-z0-9]+", "-", target or Path(path).name).strip("-")
    return f"{word or 'data'}-{hashlib.sha256(os.fsencode(path)).hexdigest()[:8]}"


class BucketData:
    """Implements `core.ports.DataStage`: the data sets of a bucket, at `data/<name>/`."""

    def __init__(
        self,
        client: S3Client,
        bucket: str,
        *,
        state: Path,
        clock: Clock,
        prefix: str = "data",
        shard_bytes: int = SHARD_BYTES,
    ) -> None:
        """Name the place; nothing is contacted.

        Args:
            client: of the bucket's region.
            bucket: its name.
            state: a folder for what each data set was seen to hold.
            clock: tells how young a file is.
            prefix: what the keys of all data sets begin with, without a slash at its end.
            shard_bytes: the most that one object holds; the machine reads what another size has made.
        """
        self._shard_bytes = shard_bytes
        self._client = client
        self._bucket = bucket
        self._state = state
        self._clock = clock
        self._prefix = prefix

    def put_data(self, mount: DataMount, progress: Progress, *, delete: bool = False) -> StagedData:
        """Bring the copy of a mount's source to the source's state; see `put`."""
        name = data_name(mount.source, mount.target)
        return self.put(mount.source, progress, name=name, places=mount.follows, delete=delete)

    def put(
        self, source: str, progress: Progress, *, name: str = "", places: Sequence[str] = (), delete: bool = False
    ) -> StagedData:
        """Bring `<prefix>/<name>/` to the state of a folder or a file.

        Where nothing has changed that is one request. Cut at any instant, a repeated call sends what wasn't sent.

        Args:
            source: on the laptop.
            progress: called as shards arrive.
            name: `data_name` of the source when left out.
            places: outside of the source, to which its links may lead; what lies there is sent in their stead.
            delete: also remove what the folder doesn't have.

        Raises:
            BadRequestError: there is no such source, it can't be read, a link leads elsewhere, or the name is none.
            ConflictError: somebody else writes to the same data set.
            KedgeError: a file changes while it is being sent, or the bucket can't be used.
        """
        name = _checked(name or data_name(source))
        found = scan(Path(source), self._clock, places)
        folder, memory = self._folder(name), self._memory(name)
        seen = memory.seen()
        place = Place(folder)
        stored = place.read_index(seen.etag)
        if stored is None and _is_the_same(seen, found, delete=delete):
            return StagedData(name=name, index=seen.index)
        update = _Update(place, memory, found, self._clock.now(), self._shard_bytes)
        return StagedData(name=name, index=update.carry_out(stored, seen, progress, delete=delete))

    def remove_data(self, mount: DataMount) -> None:
        """Remove the copy of a mount's source, if there is one.

        Raises:
            KedgeError: the bucket can't be used.
        """
        name = data_name(mount.source, mount.target)
        self._folder(name).remove("")
        self._memory(name).forget()

    def _folder(self, name: str) -> S3Folder:
        return S3Folder(client=self._client, bucket=self._bucket, prefix=f"{self._prefix}/{name}")

    def _memory(self, name: str) -> Memory:
        return Memory(self._state / f"{self._bucket}-{name}")


def _checked(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise BadRequestError(
            f"{name!r} can't be a data set's name", fix="use letters, digits, `.`, `_` and `-`, as in `imagenet-train`"
        )
    return name


def _is_the_same(seen: Seen, found: Found, *, delete: bool) -> bool:
    return bool(seen.digest and seen.index) and seen.digest == found.digest() and not (delete and seen.has_extras)


@dataclass(frozen=True, slots=True)
class _Update:
    """One data set's way from what the bucket has to what was found."""

    place: Place
    memory: Memory
    found: Found
    now: datetime
    shard_bytes: int

    def carry_out(self, stored: StoredIndex | None, seen: Seen, progress: Progress, *, delete: bool) -> str:
        """Send what isn't there, and return the SHA-256 of the index."""
        base_raw, base, details = self._base(stored, seen)
        kept = find_unchanged(self.found.files.values(), base, details.signatures, _at_once)
        changed = [file for path, file in self.found.files.items() if path not in kept]
        present = self.place.list_shards() if any(file.bytes for file in changed) else {}
        sending = self._send(changed, present, progress)
        left = set() if delete or self.found.is_file or base.is_file else self._left(base_raw, base, seen)
        index = self._index({**kept, **sending.entries(changed)}, base, left, sending.shards)
        content = index.encode()
        etag = base_raw.etag
        if index != base or not etag:
            etag = self.place.write_index(content, base_raw)
        known = Seen(
            etag=etag,
            index=hashlib.sha256(content).hexdigest(),
            digest=self.found.digest(),
            has_extras=bool(left),
        )
        self.memory.remember(known, content, self.found.signatures())
        self._tidy(base, index, present)
        return known.index

    def _base(self, stored: StoredIndex | None, seen: Seen) -> tuple[StoredIndex, Index, Details]:
        """Return what the bucket has, and what was remembered of it where that is still true."""
        if stored is None and (details := self.memory.details()) is not None:
            return StoredIndex(etag=seen.etag), details.index, details
        stored = stored or self.place.read_index("") or StoredIndex()
        return stored, decode_index(stored.content) if stored.etag else Index(), Details()

    def _left(self, base_raw: StoredIndex, base: Index, seen: Seen) -> set[str]:
        """Return what stays though it isn't here: nothing that was put there elsewhere, as machines trust all of it."""
        left = extras(self.found, base)
        if not base_raw.content or hashlib.sha256(base_raw.content).hexdigest() == seen.index:
            return left
        if left:
            _log.warning(
                "%s was written elsewhere: %d of its paths aren't here, and are left out (%r)",
                self.place.where,
                len(left),
                min(left),
            )
        return set()

    def _send(self, changed: Sequence[LocalFile], present: Mapping[str, datetime], progress: Progress) -> Sending:
        tally = Tally(progress, sum(file.bytes for file in changed))
        sending = Sending(self.place, present, tally)
        in_parallel(sending.send, plan_shards(changed, self.shard_bytes), tally, workers=_WORKERS)
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
        """Delete shards that nothing names any more; a machine that still reads the old index takes the new one."""
        abandoned = {name for name, written in present.items() if self.now - written > _ABANDONED}
        if gone := (abandoned | set(base.shards)) - set(index.shards):
            self.place.delete_shards(sorted(gone))


def _at_once(work: Callable[[LocalFile], None], files: Sequence[LocalFile]) -> None:
    in_parallel(work, files, Tally(lambda _done, _total: None, 0), workers=_WORKERS)
