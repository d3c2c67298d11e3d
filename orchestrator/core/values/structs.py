"""Makes msgspec's structs from JSON and from plain values, in any thread.

msgspec resolves a struct's annotations when it is first decoded. Another thread that decodes the same type meanwhile
finds half of them, and the program crashes (seen with msgspec 0.22: `status` asks machines in parallel). So a type is
resolved once, under a lock. ruff refuses msgspec's own functions elsewhere.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import msgspec

_Kind = TypeVar("_Kind")
_resolving = threading.Lock()


def decode_json(raw: bytes | str, kind: type[_Kind]) -> _Kind:
    """Decode JSON.

    Raises:
        msgspec.MsgspecError: it isn't JSON of that type.
        UnicodeDecodeError: it isn't text.
        RecursionError: it is nested too deeply.
    """
    return _resolved(kind).decode(raw)  # type: ignore[no-any-return]


def convert(content: object, kind: type[_Kind], *, dec_hook: Callable[[type, Any], Any] | None = None) -> _Kind:
    """Convert plain values, such as decoded YAML; `dec_hook` converts to types that msgspec doesn't know.

    Raises:
        msgspec.ValidationError: they aren't of that type.
        RecursionError: they are nested too deeply.
    """
    _resolved(kind)
    return msgspec.convert(content, kind, dec_hook=dec_hook)


def _resolved(kind: type) -> msgspec.json.Decoder[Any]:
    with _resolving:
        return _make_decoder(kind)


@cache
def _make_decoder(kind: type) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)
