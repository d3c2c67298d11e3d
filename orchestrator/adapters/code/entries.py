"""The manifest of a code tree: what both sides call the same tree."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import xxhash

MANIFEST_NAME = ".kedge-manifest.json"
FILE = "file"
LINK = "link"


class Entry(NamedTuple):
    """A file or a symbolic link of the tree. A tuple, since thousands are made for every command.

    Attributes:
        path: relative, with slashes; bytes that are no UTF-8 are lone surrogates.
        type: FILE or LINK.
        mode: 0o644 or 0o755 for files, 0o777 for links.
        size: in bytes; 0 for links.
        digest: xxh3_128 of the content, in hex; empty for links.
        link: where a link points; empty for files.
    """

    path: str
    type: str
    mode: int
    size: int
    digest: str
    link: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A whole tree, sorted by path, and its hash."""

    hash: str
    entries: tuple[Entry, ...]

    def encode(self) -> bytes:
        """Write the JSON that the agent reads."""
        return json.dumps({"hash": self.hash, "entries": [entry._asdict() for entry in self.entries]}).encode()

    def changes_since(self, base: Manifest) -> list[Entry]:
        """List the entries that a machine which has the base doesn't have."""
        had = set(base.entries)
        return [entry for entry in self.entries if entry not in had]


def manifest_of(entries: Iterable[Entry]) -> Manifest:
    """Sort entries and hash them: the same tree has the same hash everywhere."""
    ordered = tuple(sorted(entries))
    return Manifest(hash=xxhash.xxh3_128_hexdigest(json.dumps(ordered).encode()), entries=ordered)


def decode_manifest(raw: bytes) -> Manifest:
    """Read what `encode` wrote.

    Raises:
        ValueError: it is something else.
    """
    try:
        found: Mapping[str, Any] = json.loads(raw)
        return Manifest(hash=found["hash"], entries=tuple(Entry(**entry) for entry in found["entries"]))
    except (KeyError, TypeError) as err:
        raise ValueError(f"not a manifest: {err}") from err
