"""What the bucket was last seen to hold: a hint that spares questions, never a truth to rely on."""

from __future__ import annotations

import base64
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from orchestrator.adapters.datasets.index import Index, decode_index
from orchestrator.adapters.datasets.scan import Signature
from orchestrator.adapters.files import write_atomically
from orchestrator.core.errors import KedgeError


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A data set as it was left.

    Attributes:
        etag: of its index; empty for none.
        index: SHA-256 of its index; empty where nobody has noted it.
        digest: of the stats of the folder that it equals; empty for none.
        has_extras: it holds what the folder doesn't.
    """

    etag: str = ""
    index: str = ""
    digest: str = ""
    has_extras: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Details:
    """The long part of what was seen."""

    index: Index = field(default_factory=Index)
    signatures: dict[str, Signature] = field(default_factory=dict)


class Memory:
    """One data set's: a short line that tells whether anything changed, and a long one that tells what."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def seen(self) -> Seen:
        """Return what was seen; nothing where that can't be read."""
        try:
            with self._path.open("rb") as file:
                return Seen(**json.loads(file.readline()))
        except (FileNotFoundError, ValueError, TypeError):
            return Seen()

    def details(self) -> Details | None:
        """Return the long part, None where that can't be read."""
        try:
            found = json.loads(self._path.read_bytes().partition(b"\n")[2])
            signatures = {path: (row[0], row[1], row[2], row[3]) for path, row in found["signatures"].items()}
            return Details(index=decode_index(base64.b64decode(found["index"])), signatures=signatures)
        except (FileNotFoundError, ValueError, KeyError, KedgeError):
            return None

    def remember(self, seen: Seen, index: bytes, signatures: dict[str, Signature]) -> None:
        """Keep all of it."""
        long = {"index": base64.b64encode(index).decode(), "signatures": signatures}
        write_atomically(self._path, json.dumps(asdict(seen)).encode() + b"\n" + json.dumps(long).encode())

    def forget(self) -> None:
        """Keep nothing."""
        self._path.unlink(missing_ok=True)
