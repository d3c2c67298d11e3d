"""Shards on their way up."""

from __future__ import annotations

import hashlib
import os
import threading
from collections import defaultdict
from collections.abc import Container, Iterable, Sequence
from pathlib import Path

from orchestrator.adapters.datasets.index import FileEntry, Piece
from orchestrator.adapters.datasets.packing import Extent, Shard
from orchestrator.adapters.datasets.place import Place
from orchestrator.adapters.datasets.scan import LocalFile, signature_of
from orchestrator.adapters.objects.tally import Tally
from orchestrator.core.errors import KedgeError

_CHUNK = 4 << 20


class Sending:
    """Reads, hashes and sends shards; `send` may be called from several threads, and holds one shard in memory.

    Attributes:
        shards: name -> bytes, of what was sent or was there already.
    """

    def __init__(self, place: Place, present: Container[str], tally: Tally) -> None:
        self.shards: dict[str, int] = {}
        self._place = place
        self._present = present
        self._tally = tally
        self._pieces: defaultdict[str, dict[int, Piece]] = defaultdict(dict)
        self._lock = threading.Lock()

    def send(self, shard: Shard) -> None:
        """Send one shard, unless its content is there.

        Raises:
            KedgeError: a file changed under our hands, or the bucket can't be used.
        """
        runs = [_read(extent) for extent in shard]
        digests = [hashlib.sha256(run).hexdigest() for run in runs]
        name = _name(digests)
        if name not in self._present:
            self._place.write_shard(name, b"".join(runs))
        self._note(name, shard, digests)
        self._tally.add(sum(map(len, runs)))

    def entries(self, files: Iterable[LocalFile]) -> dict[str, FileEntry]:
        """Return the entries of files whose shards were all sent."""
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
    """Name a shard by what it holds, without hashing it all once more."""
    return digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()


def _read(extent: Extent) -> bytes:
    """Read a run of a file, and make sure that it is still the file that was found."""
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
        raise _changes(extent.file, "what would arrive is neither the old content nor the new")
    return bytes(content)


def _changes(file: LocalFile, why: str) -> KedgeError:
    return KedgeError(
        f"{file.source!r} changes while it is being sent",
        why=why,
        fix="stop what writes there and run the command again: what was sent isn't sent again",
    )
