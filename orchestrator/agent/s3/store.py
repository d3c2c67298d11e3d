"""The object store's interface, and its implementation in a folder. `s3://` is S3; `file://` is a local folder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from ..base.errors import RequestError
from ..base.files import join_bounded, replacing, write_atomically
from ..base.wire import MachineConfig

_CHUNK_BYTES = 1 << 20


class ObjectStore(Protocol):
    """An object store: keys and bytes. Writes are atomic."""

    def read(self, key: str) -> bytes | None:
        """Read a small object; None if it doesn't exist.

        Raises:
            AgentError: it is larger than any small object of kedge.
        """

    def write(self, key: str, content: bytes) -> None:
        """Write or replace a small object."""

    def put(self, key: str, chunks: Iterable[bytes]) -> None:
        """Write an object; if `chunks` raises, nothing is written."""

    def get(self, key: str) -> Iterator[bytes]:
        """Read an object in chunks; OSError if it doesn't exist."""

    def keys(self, prefix: str) -> set[str]:
        """List the keys under a prefix that ends with a slash, one level deep."""

    def delete(self, key: str) -> None:
        """Delete an object; one that is gone is no error."""


class FolderStore:
    """An object store in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, key: str) -> bytes | None:
        """Read a small object; None if it doesn't exist."""
        try:
            return join_bounded(self._pieces(key), key)
        except FileNotFoundError:
            return None

    def write(self, key: str, content: bytes) -> None:
        """Write or replace a small object."""
        path = self._folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, content, durable=True)

    def put(self, key: str, chunks: Iterable[bytes]) -> None:
        """Write an object, durably; when `chunks` raises, nothing is written."""
        path = self._folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path, durable=True) as stream:
            stream.writelines(chunks)

    def get(self, key: str) -> Iterator[bytes]:
        """Read an object in chunks; OSError if it doesn't exist."""
        return self._pieces(key)

    def keys(self, prefix: str) -> set[str]:
        """List the keys under a prefix that ends with a slash, one level deep."""
        folder = self._folder / prefix
        return {f"{prefix}{path.name}" for path in folder.iterdir()} if folder.is_dir() else set()

    def delete(self, key: str) -> None:
        """Delete an object; one that is gone is no error."""
        (self._folder / key).unlink(missing_ok=True)

    def _pieces(self, key: str) -> Iterator[bytes]:
        with (self._folder / key).open("rb") as stream:
            while chunk := stream.read(_CHUNK_BYTES):
                yield chunk


def open_results(machine: MachineConfig) -> ObjectStore | None:
    """Open the store where this machine's results are.

    Raises:
        RequestError: the kind of store is unknown.
    """
    return open_place(machine, machine.rank)


def open_place(machine: MachineConfig, rank: int) -> ObjectStore | None:
    """Open the store where one of the run's machines has its results: the run's prefix, or its own after the head.

    Raises:
        RequestError: the kind of store is unknown.
    """
    return open_store(machine, place=f"{machine.run}/nodes/{rank}" if rank else "")


def open_store(machine: MachineConfig, *, place: str = "") -> ObjectStore | None:
    """Open the machine's store at its run's prefix, or at another place; None if it has no store.

    Raises:
        RequestError: the kind of store is unknown.
    """
    if not machine.store_url:
        return None
    url = urlsplit(machine.store_url)
    if url.scheme == "s3" and url.netloc:
        from .bucket import open_s3  # noqa: PLC0415 - HTTP and TLS are on nobody else's way

        return open_s3(machine.store_url, place or machine.run)
    if url.scheme != "file" or url.netloc not in ("", "localhost"):
        raise RequestError(
            f"{machine.store_url}: unknown kind of store", fix="use file:///folder or s3://bucket/prefix"
        )
    return FolderStore(Path(unquote(url.path)) / (place or machine.run))
