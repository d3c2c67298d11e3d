"""Uploads the shards of a data set."""

from __future__ import annotations

import hashlib
import os
import threading
from collections import defaultdict
from collections.abc import Container, Iterable, Sequence
from pathlib import Path

from orchestrator.adapters.store.transfer import TransferProgress
from orchestrator.adapters.sync.data.index import FileEntry, Piece
from orchestrator.adapters.sync.data.objects import DataSetObjects
from orchestrator.adapters.sync.data.packing import Extent, Shard
from orchestrator.adapters.sync.snapshot import LocalFile, signature_of
from orchestrator.core.errors import KedgeError

_CHUNK = 4 << 20


class Sending:
    """Reads, hashes and sends shards. `send` may be called from several threads; each holds one shard in memory.

    Attributes:
        shards: name -> bytes, of shards that were sent or were there already.
    """

    def __init__(self, objects: DataSetObjects, present: Container[str], progress: TransferProgress) -> None:
        self.shards: dict[str, int] = {}
        self._objects = objects
        self._present = present
        self._progress = progress
        self._pieces: defaultdict[str, dict[int, Piece]] = defaultdict(dict)
        self._lock = threading.Lock()

    def send(self, shard: Shard) -> None:
        """Send one shard, unless the bucket has its content.

        Raises:
            KedgeError: a file changed while it was sent, or the bucket can't be used.
        """
        runs = [_read(extent) for extent in shard]
        digests = [hashlib.sha256(run).hexdigest() for run in runs]
        name = _name(digests)
        if name not in self._present:
            self._objects.write_shard(name, b"".join(runs))
        self._note(name, shard, digests)
        self._progress.add(sum(map(len, runs)))

    def entries(self, files: Iterable[LocalFile]) -> dict[str, FileEntry]:
        """Return the index entries of files; all their shards must have been sent."""
        return {
            file.path: FileEntry(
                mode=file.mode,
                mtime_ns=file.mtime_ns,
                pieces=tuple(piece for _, piece in sorted(self._pieces[file.path].items())),
            )
            for file in files
        }

    def _note(self, name: str, shard: Shard, digests: Sequence[str]) -> None:
        offset = 0
        with self._lock:
            for extent, digest in zip(shard, digests, strict=True):
                self._pieces[extent.file.path][extent.start] = Piece(name, offset, extent.bytes, digest)
                offset += extent.bytes
            self.shards[name] = offset


def _name(digests: Sequence[str]) -> str:
    """Name a shard by its content, from its pieces' digests, so that it isn't hashed again."""
    return digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()


def _read(extent: Extent) -> bytes:
    """Read a range of a file, and check that the file is the same as in the snapshot."""
    content = bytearray()
    try:
        with Path(extent.file.source).open("rb") as file:
            file.seek(extent.start)
            while len(content) < extent.bytes and (chunk := file.read(min(_CHUNK, extent.bytes - len(content)))):
                content += chunk
            unchanged = signature_of(os.fstat(file.fileno())) == extent.file.signature
    except OSError as err:
        raise _changes(extent.file, err.strerror or str(err)) from err
    if not unchanged or len(content) != extent.bytes:
        raise _changes(extent.file, "the machine would get neither the old content nor the new")
    return bytes(content)


def _changes(file: LocalFile, why: str) -> KedgeError:
    return KedgeError(
        f"{file.source!r} changes while it is being sent",
        why=why,
        fix="stop what writes there and run the command again: what was sent isn't sent again",
    )
