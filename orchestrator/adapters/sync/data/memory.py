"""Remembers the last known state of the bucket: a hint that saves requests, and may be wrong."""

from __future__ import annotations

import base64
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from orchestrator.adapters.host.files import write_atomically
from orchestrator.adapters.sync.data.index import Index, decode_index
from orchestrator.adapters.sync.snapshot import Signature
from orchestrator.core.errors import KedgeError


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A data set's state after the last transfer.

    Attributes:
        etag: the index's etag; empty for none.
        index: the index's SHA-256; empty if unknown.
        digest: the digest of the stats of the folder that was sent; empty for none.
        has_extras: the bucket has paths that the folder doesn't have.
    """

    etag: str = ""
    index: str = ""
    digest: str = ""
    has_extras: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Details:
    """The large part of the state."""

    index: Index = field(default_factory=Index)
    signatures: dict[str, Signature] = field(default_factory=dict)


class Memory:
    """The state file of one data set: a short line tells whether anything changed, and a long one tells what."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def seen(self) -> Seen:
        """Return the state; an empty one if it can't be read."""
        try:
            with self._path.open("rb") as file:
                return Seen(**json.loads(file.readline()))
        except (FileNotFoundError, ValueError, TypeError):
            return Seen()

    def details(self) -> Details | None:
        """Return the large part; None if it can't be read."""
        try:
            found = json.loads(self._path.read_bytes().partition(b"\n")[2])
            signatures = {path: (row[0], row[1], row[2], row[3]) for path, row in found["signatures"].items()}
            return Details(index=decode_index(base64.b64decode(found["index"])), signatures=signatures)
        except (FileNotFoundError, ValueError, KeyError, KedgeError):
            return None

    def remember(self, seen: Seen, index: bytes, signatures: dict[str, Signature]) -> None:
        """Store the state."""
        long = {"index": base64.b64encode(index).decode(), "signatures": signatures}
        write_atomically(self._path, json.dumps(asdict(seen)).encode() + b"\n" + json.dumps(long).encode())

    def forget(self) -> None:
        """Delete the state."""
        self._path.unlink(missing_ok=True)
