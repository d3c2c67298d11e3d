"""Secrets that can be told apart, and a search for them in bytes: plain, encoded, packed, or cut off."""

from __future__ import annotations

import base64
import bz2
import contextlib
import io
import lzma
import re
import secrets
import string
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import zstandard

GZIP = b"\x1f\x8b"
"""The first bytes of its files."""

_DEPTH = 4
_PACKED: dict[bytes, Callable[[], Any]] = {
    GZIP: lambda: zlib.decompressobj(31),
    b"\x78": zlib.decompressobj,
    b"\x28\xb5\x2f\xfd": lambda: zstandard.ZstdDecompressor().decompressobj(),
    b"\xfd7zXZ\x00": lzma.LZMADecompressor,
    b"BZh": bz2.BZ2Decompressor,
}
_PACKED_TEXT = re.compile(rb"(?:H4sI|KLUv|/Td6|Qlpo|eJ)[A-Za-z0-9+/\s]{24,}={0,2}")
"""Base64 of the first bytes of packed data, as cloud-init accepts it: gzip, zstd, xz, bzip2, zlib."""


@dataclass(frozen=True)
class Secrets:
    """The secrets of one test.

    Each contains a unique stem, then its number, then the stem again: a secret that was cut off
    at either end is still found. All are letters and digits, which quoting doesn't change.

    Attributes:
        stem: the part that all secrets share.
        values: the secrets that were made here, by name.
        texts: parts of secrets that others have made (keys), by name.
    """

    stem: str = field(default_factory=lambda: "".join(secrets.choice(string.ascii_letters) for _ in range(12)))
    values: dict[str, str] = field(default_factory=dict)
    texts: dict[str, list[str]] = field(default_factory=dict)

    def make(self, name: str, form: str = "{}") -> str:
        """Make a secret; `form` is the format that its users expect."""
        assert name not in self.values
        self.values[name] = form.format(f"{self.stem}{len(self.values):02}{self.stem}")
        return self.values[name]

    def add(self, name: str, text: str) -> None:
        """Search for this text, too; a name may have several texts."""
        assert len(text) >= 16
        self.texts.setdefault(name, []).append(text)

    def add_key(self, name: str, key: str) -> None:
        """Search for the private half of an OpenSSH key."""
        lines = [line.strip() for line in key.strip().splitlines()]
        assert "PRIVATE KEY" in lines[0]
        # The public half comes first; the last line may be short.
        self.add(name, lines[-3][-40:])

    @property
    def names(self) -> frozenset[str]:
        """The names of all secrets."""
        return frozenset({*self.values, *self.texts})

    def find(self, data: bytes) -> set[str]:
        """Return the names of the secrets in some bytes; `?` for a part that may be of any of them."""
        found = {name for layer in _layers(data, _DEPTH) for name in self._find(layer)}
        # Packed data may contain the beginning of its content unpacked.
        return found - {"?"} or found

    def _find(self, data: bytes) -> Iterator[str]:
        yield from (name for name, texts in self.texts.items() for text in texts if _has(data, text.encode()))
        if not _has(data, self.stem.encode()):
            return
        found = [
            name
            for number, name in enumerate(self.values)
            if any(_has(data, part.encode()) for part in self._parts(number))
        ]
        yield from found or ["?"]

    def _parts(self, number: int) -> tuple[str, str]:
        """Return the parts that identify a secret, with letters around the number: in base64, bytes share letters."""
        return f"{self.stem}{number:02}{self.stem[:2]}", f"{self.stem[-2:]}{number:02}{self.stem}"


def _has(data: bytes, text: bytes) -> bool:
    return any(form in data for form in _forms(text))


def _forms(text: bytes) -> Iterator[bytes]:
    """Return the forms of some bytes: plain, in hex, and in base64 at each offset."""
    yield text
    yield text.hex().encode()
    yield text.hex().upper().encode()
    for before, cut in ((0, 0), (1, 2), (2, 3)):
        encoded = base64.b64encode(bytes(before) + text)
        # The last letter before the padding also holds bits of the bytes that follow.
        over = {0: 0, 1: 3, 2: 2}[(before + len(text)) % 3]
        yield encoded[cut : len(encoded) - over]


def _layers(data: bytes, depth: int) -> Iterator[bytes]:
    yield data
    if not depth:
        return
    for inner in _unpacked(data):
        yield from _layers(inner, depth - 1)
    for match in _PACKED_TEXT.finditer(data):
        packed = b"".join(match.group().rstrip(b"=").split())
        inner = base64.b64decode(packed[: len(packed) // 4 * 4] + b"==" * (len(packed) % 4 > 1))
        yield from _layers(inner, depth - 1)


def _unpacked(data: bytes) -> Iterator[bytes]:
    """Unpack packed data as far as possible: a file may be incomplete."""
    for magic, decompressor in _PACKED.items():
        if data.startswith(magic):
            yield _decompress(data, decompressor)
    if data.startswith(b"PK\x03\x04"):
        with contextlib.suppress(zipfile.BadZipFile, NotImplementedError, RuntimeError):
            archive = zipfile.ZipFile(io.BytesIO(data))
            yield from (archive.read(name) for name in archive.namelist())


def _decompress(data: bytes, decompressor: Callable[[], Any]) -> bytes:
    parts: list[bytes] = []
    with contextlib.suppress(zlib.error, lzma.LZMAError, zstandard.ZstdError, OSError, EOFError):
        while data:
            stream = decompressor()
            parts.append(stream.decompress(data))
            data = stream.unused_data
    return b"".join(parts)
