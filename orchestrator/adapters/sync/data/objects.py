"""Reads and writes the objects of one data set in the object store."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from orchestrator.adapters.store.object_store import ObjectStore, StoredObject
from orchestrator.adapters.sync.data.index import INDEX, INDEX_BYTES, SHARDS
from orchestrator.core.errors import ConflictError

NO_INDEX = StoredObject(content=b"", etag="")


class DataSetObjects:
    """The objects of one data set, under `<name>/`."""

    def __init__(self, store: ObjectStore, name: str) -> None:
        self._store = store
        self._folder = f"{name}/"

    @property
    def where(self) -> str:
        """Its address, for messages."""
        return self._store.where(self._folder)

    def read_index(self, known_etag: str) -> StoredObject | None:
        """Read the index; None if it still has the known etag, which takes one request.

        Raises:
            KedgeError: the store can't be used.
        """
        key = self._folder + INDEX
        if known_etag and self._store.etag(key) == known_etag:
            return None
        return self._store.read(key, INDEX_BYTES) or NO_INDEX

    def write_index(self, content: bytes, replaced: StoredObject) -> str:
        """Replace the index, unless another process has replaced it, and return its etag.

        Raises:
            ConflictError: another process has.
            KedgeError: the store can't be used.
        """
        try:
            return self._store.replace(self._folder + INDEX, content, replaced.etag)
        except ConflictError as err:
            raise ConflictError(
                f"{self.where} was changed while data was sent to it",
                why="another `sync-data` writes to the same place",
                fix="run the command again when the other is done: what was sent isn't sent again",
            ) from err

    def write_shard(self, name: str, content: bytes) -> None:
        """Write one shard, without a checksum: the machine verifies the SHA-256 of every piece.

        Raises:
            KedgeError: the store can't be used.
        """
        self._store.write(self._folder + SHARDS + name, content, for_has=False)

    def list_shards(self) -> dict[str, datetime]:
        """List the shards, and when each was written.

        Raises:
            KedgeError: the store can't be used.
        """
        prefix = self._folder + SHARDS
        return {key.removeprefix(prefix): written for key, written in self._store.list(prefix).items()}

    def delete_shards(self, names: Sequence[str]) -> None:
        """Delete shards; missing ones are ignored.

        Raises:
            KedgeError: the store can't be used.
        """
        self._store.delete([self._folder + SHARDS + name for name in names])
