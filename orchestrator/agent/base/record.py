"""Immutable records, declared like frozen dataclasses.

`dataclasses` imports `inspect` and compiles methods for each class, which took half of the CPU time of a short verb.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

if TYPE_CHECKING or sys.version_info >= (3, 11):
    from typing import dataclass_transform
else:

    def dataclass_transform(**_: object) -> Any:
        """Do nothing: only type checkers read it."""
        return lambda kind: kind


_Self = TypeVar("_Self", bound="Record")

LATEST = 16_725_225_600.0
"""The latest time that the laptop accepts, in Unix seconds (core/protocol/decoding.py)."""


@dataclass_transform(frozen_default=True)
class Record:
    """A record: a subclass declares its fields with their types, and defaults, which must be immutable."""

    fields: ClassVar[dict[str, str]] = {}
    """The type of each field, as written."""

    def __init_subclass__(cls) -> None:
        cls.fields = dict(cls.__annotations__)

    def __init__(self, *values: Any, **named: Any) -> None:
        given = {**dict(zip(self.fields, values, strict=False)), **named}
        missing = [name for name in self.fields if name not in given and not hasattr(type(self), name)]
        if missing or len(given) != len(values) + len(named) or not given.keys() <= self.fields.keys():
            raise TypeError(f"{type(self).__name__} has the fields {', '.join(self.fields)}, not {', '.join(given)}")
        self.__dict__.update(given)

    def __setattr__(self, name: str, _value: object) -> None:
        raise AttributeError(f"{type(self).__name__}.{name} can't be changed")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._values() == other._values()

    def __hash__(self) -> int:
        return hash(self._values())

    def __repr__(self) -> str:
        shown = (f"{name}={value!r}" for name, value in zip(self.fields, self._values(), strict=True))
        return f"{type(self).__name__}({', '.join(shown)})"

    def replace(self: _Self, **changes: Any) -> _Self:
        """Return a copy with other values in some fields."""
        return type(self)(**{**self.__dict__, **changes})

    def _values(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in self.fields)


def key_of(name: str) -> str:
    """Return a field's JSON key, which doesn't change with the field's name."""
    return {"deadline_at": "deadline", "upload": "shipped"}.get(name, name)


def to_json(record: Record) -> dict[str, Any]:
    """Turn a record, and the records in it, into dicts for json.dumps."""
    return {key_of(name): _plain(getattr(record, name)) for name in record.fields}


def _plain(value: Any) -> Any:
    if isinstance(value, Record):
        return to_json(value)
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return {key: _plain(item) for key, item in value.items()} if isinstance(value, Mapping) else value


def instant(seconds: float) -> float:
    """Clamp a time to what the laptop accepts: a file may have any time, because programs can set it."""
    return min(max(0.0, float(seconds)), LATEST)
