"""What results are read from: keys and bytes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from orchestrator.core.errors import KedgeError

_WHOLE_BYTES = 256 << 20


def read_whole(chunks: Iterable[bytes], where: str) -> bytes:
    """Join an object's pieces.

    Raises:
        KedgeError: it is larger than 256 MiB: no list of results is, and no log that fits on a screen.
    """
    pieces: list[bytes] = []
    size = 0
    for chunk in chunks:
        size += len(chunk)
        if size > _WHOLE_BYTES:
            raise KedgeError(f"{where} is larger than {_WHOLE_BYTES >> 20} MiB, and is not read in one piece")
        pieces.append(chunk)
    return b"".join(pieces)


class Bucket(Protocol):
    """One place of an object store; keys are relative to it."""

    def read(self, key: str) -> bytes | None:
        """Read a small object; None where there is none.

        Raises:
            KedgeError: it is larger than any that is read whole, or the store can't be used.
        """

    def stream(self, key: str, start: int) -> Iterator[bytes]:
        """Yield an object piece by piece, from an offset in bytes on.

        Raises:
            FileNotFoundError: there is none.
            KedgeError: the store can't be used.
        """

    def remove(self, prefix: str) -> None:
        """Remove every object whose key begins so; where there is none it is no error.

        Raises:
            KedgeError: the store can't be used.
        """

    def where(self, key: str) -> str:
        """Say where an object lies, for a person."""
