"""What results are read from: keys and bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol


class Bucket(Protocol):
    """One place of an object store; keys are relative to it."""

    def read(self, key: str, most: int) -> bytes | None:
        """Read a small object, or one byte more than `most` of a larger one; None where there is none.

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
