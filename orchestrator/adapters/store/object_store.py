"""The protocol of all object stores: an S3 bucket (`s3`) or a folder (`folder`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import IO, Protocol

from orchestrator.adapters.store.transfer import TransferProgress


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredObject:
    """An object's content and etag.

    Attributes:
        etag: changes with the content.
    """

    content: bytes
    etag: str


class ObjectStore(Protocol):
    """One prefix of an object store; keys are relative to it.

    Every method raises KedgeError if the store can't be used.
    """

    @property
    def name(self) -> str:
        """The bucket's name, or the folder's."""

    @property
    def url(self) -> str:
        """The URL that machines get."""

    @property
    def workers(self) -> int:
        """How many objects to read in parallel."""

    def where(self, key: str) -> str:
        """Return an object's address, for messages."""

    def read(self, key: str, most: int) -> StoredObject | None:
        """Read a small object, or `most` + 1 bytes of a larger one; None if it doesn't exist."""

    def etag(self, key: str) -> str:
        """Return an object's etag; empty if it doesn't exist."""

    def stream(self, key: str, start: int) -> Iterator[bytes]:
        """Yield an object in chunks, from a byte offset on.

        Raises:
            FileNotFoundError: it doesn't exist.
        """

    def has(self, key: str, content: IO[bytes]) -> bool:
        """Tell whether an object has this content, as written by `write` or `upload`; False if that isn't known."""

    def list(self, prefix: str) -> Mapping[str, datetime]:
        """List the keys with a prefix, and when each was written."""

    def write(self, key: str, content: bytes, *, for_has: bool = True) -> None:
        """Write an object in one request.

        Args:
            key: its key.
            content: the whole content.
            for_has: make `has` work for it, which costs a hash of the content.
        """

    def replace(self, key: str, content: bytes, etag: str) -> str:
        """Replace an object if it still has this etag, or create it if the etag is empty; return the new etag.

        Raises:
            ConflictError: it has been written meanwhile.
        """

    def upload(self, key: str, file: Path, progress: TransferProgress) -> None:
        """Write an object of any size from a file; an interrupted upload leaves no object."""

    def delete(self, keys: Sequence[str]) -> None:
        """Delete objects; missing ones are ignored."""

    def remove(self, folder: str) -> None:
        """Remove every object in a folder, whose name ends with a slash; a missing one is ignored."""
