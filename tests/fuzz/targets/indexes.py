"""The index of a data set in the bucket, which others may write to: as the laptop reads it, and as a machine does.

Promises: it is read or refused with an error, in bounded memory; one that the laptop accepts can be used, and is the
same when written again; a machine writes nothing outside of the data set's folder.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path

from orchestrator.adapters.sync.data.compare import extras, find_unchanged
from orchestrator.adapters.sync.data.index import decode_index
from orchestrator.adapters.sync.snapshot import Snapshot
from orchestrator.agent.base.errors import AgentError
from orchestrator.agent.data.mirror import mirror_data_set
from orchestrator.agent.s3.store import FolderStore
from orchestrator.core.errors import KedgeError
from tests.fuzz.forms import AS_ZIPPED_JSON
from tests.fuzz.target import Target
from tests.fuzz.trees import guarded, require_inside

SHARD = b"abc" * 1000
SHARD_NAME = hashlib.sha256(SHARD).hexdigest()


def _run(data: bytes, folder: Path) -> None:
    with guarded(folder, "store", "machine"):
        with suppress(KedgeError):
            _work_with(data)
        with suppress(AgentError, OSError):
            _pull(data, folder / "store", folder / "machine" / "set")


def _work_with(data: bytes) -> None:
    index = decode_index(data)
    assert decode_index(index.encode()) == index
    assert index.encode() == decode_index(index.encode()).encode()
    assert all(index.paths)
    found = Snapshot(settled_ns=0)
    assert extras(found, index) <= index.paths
    assert find_unchanged((), index, {}, lambda _work, _files: None) == {}
    for file in index.files.values():
        assert file.bytes >= 0
        assert all(piece.shard in index.shards for piece in file.pieces)
        os.fsencode("".join(piece.shard for piece in file.pieces))


def _pull(data: bytes, store: Path, target: Path) -> None:
    (store / "shards").mkdir(parents=True)
    (store / "index.json.gz").write_bytes(data)
    (store / "shards" / SHARD_NAME).write_bytes(SHARD)
    target.parent.mkdir()
    with guarded(target.parent, "set", ".set.kedge"):
        try:
            mirror_data_set(FolderStore(store), target, pin=hashlib.sha256(data).hexdigest())
        finally:
            require_inside(target.parent)


TARGET = Target(
    name="indexes",
    run=_run,
    allowed=(),
    form=AS_ZIPPED_JSON,
    tokens=(b"\x1f\x8b\x08\x00",),
    examples=150,
)
