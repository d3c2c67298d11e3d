"""Formats of inputs: parsed into plain values, changed, and written again, so that mutations stay close to them."""

from __future__ import annotations

import gzip
import json
import zlib
from dataclasses import dataclass
from typing import Any, Protocol

import yaml

DEEP = "@nested@"
"""Stands for deeply nested lists, which no encoder would write."""
_LEVELS = 3000
_LENGTH = 8


class Form(Protocol):
    """A format."""

    def read(self, data: bytes) -> Any:
        """Parse the bytes.

        Raises:
            ValueError: they aren't of this format.
        """

    def write(self, value: Any) -> bytes:
        """Write the value as bytes."""


class _Json:
    def read(self, data: bytes) -> Any:
        try:
            value = json.loads(data)
            # A value that is nested too deep to be written can't be changed either.
            json.dumps(value)
        except RecursionError as err:
            raise ValueError("nested too deep") from err
        return value

    def write(self, value: Any) -> bytes:
        text = json.dumps(value)
        return text.replace(f'"{DEEP}"', "[" * _LEVELS + "]" * _LEVELS).encode()


class _Yaml:
    def read(self, data: bytes) -> Any:
        if b"*" in data and b"&" in data:
            raise ValueError("aliases: their value may be infinite")
        try:
            return yaml.safe_load(data.decode())
        except (yaml.YAMLError, RecursionError, AttributeError, TypeError, OverflowError) as err:
            raise ValueError("no YAML") from err

    def write(self, value: Any) -> bytes:
        # JSON is YAML, and quotes texts that YAML would take for other types.
        return AS_JSON.write(value) if _is_odd(value) else yaml.safe_dump(value, sort_keys=False).encode()


class _Zipped:
    def read(self, data: bytes) -> Any:
        try:
            return AS_JSON.read(gzip.decompress(data[: 1 << 20]))
        except (OSError, EOFError, zlib.error) as err:
            raise ValueError("no gzip") from err

    def write(self, value: Any) -> bytes:
        return gzip.compress(AS_JSON.write(value), 1, mtime=0)


@dataclass(frozen=True)
class _Headed:
    """Eight bytes with the header's length, a JSON header, then data: safetensors."""

    def read(self, data: bytes) -> Any:
        length = int.from_bytes(data[:_LENGTH], "little")
        if not 0 < length <= len(data):
            raise ValueError("no header")
        return [AS_JSON.read(data[_LENGTH : _LENGTH + length]), data[_LENGTH + length :].decode("latin-1")]

    def write(self, value: Any) -> bytes:
        header, rest = value if isinstance(value, list) and len(value) == 2 else (value, "")
        text = AS_JSON.write(header)
        body = rest.encode("latin-1", "replace") if isinstance(rest, str) else b""
        return len(text).to_bytes(_LENGTH, "little") + text + body


class _Raw:
    def read(self, data: bytes) -> Any:  # noqa: ARG002 - the form's name
        raise ValueError("bytes")

    def write(self, value: Any) -> bytes:
        raise NotImplementedError


def _is_odd(value: Any) -> bool:
    """Return whether YAML's writer would fail, or need seconds."""
    text = json.dumps(value)
    return DEEP in text or len(text) > 10_000 or "\\u" in text


AS_JSON: Form = _Json()
AS_YAML: Form = _Yaml()
AS_ZIPPED_JSON: Form = _Zipped()
AS_SAFETENSORS: Form = _Headed()
AS_BYTES: Form = _Raw()
