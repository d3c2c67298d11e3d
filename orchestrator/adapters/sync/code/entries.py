"""The manifest of a code tree: its entries and their hash, by which laptop and machine compare trees."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import xxhash

MANIFEST_NAME = ".kedge-manifest.json"
FILE = "file"
LINK = "link"


class CodeEntry(NamedTuple):
    """A file or a symbolic link of the tree. A tuple, because every command creates thousands.

    Attributes:
        path: relative, with slashes; bytes that aren't UTF-8 are lone surrogates.
        type: FILE or LINK.
        mode: 0o644 or 0o755 for files, 0o777 for links.
        size: in bytes; 0 for links.
        digest: xxh3_128 of the content, in hex; empty for links.
        link: a link's target; empty for files.
    """

    path: str
    type: str
    mode: int
    size: int
    digest: str
    link: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeManifest:
    """A whole tree's entries, sorted by path, and its hash."""

    hash: str
    entries: tuple[CodeEntry, ...]

    def encode(self) -> bytes:
        """Return the JSON that the agent reads."""
        return json.dumps({"hash": self.hash, "entries": [entry._asdict() for entry in self.entries]}).encode()

    def changes_since(self, base: CodeManifest) -> list[CodeEntry]:
        """List the entries that are missing on a machine with the base."""
        had = set(base.entries)
        return [entry for entry in self.entries if entry not in had]


def manifest_of(entries: Iterable[CodeEntry]) -> CodeManifest:
    """Sort and hash entries: the same tree has the same hash on every computer."""
    ordered = tuple(sorted(entries))
    return CodeManifest(hash=xxhash.xxh3_128_hexdigest(json.dumps(ordered).encode()), entries=ordered)


def decode_manifest(raw: bytes) -> CodeManifest:
    """Read what `encode` wrote.

    Raises:
        ValueError: it isn't a manifest.
    """
    try:
        found: Mapping[str, Any] = json.loads(raw)
        return CodeManifest(hash=found["hash"], entries=tuple(CodeEntry(**entry) for entry in found["entries"]))
    except (KeyError, TypeError) as err:
        raise ValueError(f"not a manifest: {err}") from err
