"""What a value must be like, where AWS's model says so in words only."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol


class Rule(Protocol):
    """One constraint on the value of one member."""

    def broken_by(self, value: Any, beside: Mapping[str, Any]) -> str | None:
        """Say what is wrong with a value, given the other members of its structure; None where nothing is."""


@dataclass(frozen=True, slots=True)
class Length:
    """A text of at most so many characters, or a list of at most so many items."""

    most: int

    def broken_by(self, value: Any, _beside: Mapping[str, Any]) -> str | None:
        if len(value) <= self.most:
            return None
        return f"{len(value)} {'items' if isinstance(value, list) else 'characters'}, at most {self.most} are allowed"


@dataclass(frozen=True, slots=True)
class Characters:
    """A text of these characters only; `allowed` is a class of regular expressions."""

    allowed: str

    def broken_by(self, value: Any, _beside: Mapping[str, Any]) -> str | None:
        wrong = re.sub(self.allowed, "", str(value))
        return f"{wrong[0]!r} is not one of the characters {self.allowed}" if wrong else None


@dataclass(frozen=True, slots=True)
class Span:
    """A number from `least` to `most`; with `when`, only where another member has one of these values."""

    least: float
    most: float
    when: tuple[str, tuple[str, ...]] | None = None

    def broken_by(self, value: Any, beside: Mapping[str, Any]) -> str | None:
        if self.when and beside.get(self.when[0]) not in self.when[1]:
            return None
        return None if self.least <= float(value) <= self.most else f"not between {self.least:g} and {self.most:g}"


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of these words."""

    words: tuple[str, ...]

    def broken_by(self, value: Any, _beside: Mapping[str, Any]) -> str | None:
        return None if value in self.words else f"not one of {', '.join(self.words)}"


@dataclass(frozen=True, slots=True)
class Matching:
    """A text that a regular expression describes from its beginning to its end; `says` describes it to people."""

    pattern: str
    says: str

    def broken_by(self, value: Any, _beside: Mapping[str, Any]) -> str | None:
        return None if re.fullmatch(self.pattern, str(value), re.DOTALL) else self.says


@dataclass(frozen=True, slots=True)
class NotWith:
    """Not together with other members of the same structure."""

    others: tuple[str, ...]

    def broken_by(self, _value: Any, beside: Mapping[str, Any]) -> str | None:
        both = [name for name in self.others if beside.get(name)]
        return f"not allowed together with {', '.join(both)}" if both else None


@dataclass(frozen=True, slots=True)
class NotBoth:
    """One of two members of a structure, not both."""

    members: tuple[str, str]

    def broken_by(self, _value: Any, beside: Mapping[str, Any]) -> str | None:
        both = all(beside.get(name) for name in self.members)
        return f"either {' or '.join(self.members)} can be specified, but not both" if both else None


@dataclass(frozen=True, slots=True)
class OnlyWith:
    """Only where another member has one of these values, or (no values) is there at all."""

    other: str
    values: tuple[Any, ...] = ()

    def broken_by(self, _value: Any, beside: Mapping[str, Any]) -> str | None:
        found = beside.get(self.other)
        if found in self.values or (found is not None and not self.values):
            return None
        return f"allowed only with {self.other} {' or '.join(map(str, self.values))}".rstrip()


@dataclass(frozen=True, slots=True)
class Checked:
    """What a function says is wrong."""

    check: Callable[[Any, Mapping[str, Any]], str | None]

    def broken_by(self, value: Any, beside: Mapping[str, Any]) -> str | None:
        return self.check(value, beside)


@dataclass(frozen=True, slots=True)
class Never:
    """Not at all: kedge doesn't send it, and nobody has taught the box what AWS would say to it."""

    def broken_by(self, _value: Any, _beside: Mapping[str, Any]) -> str | None:
        return "the box doesn't know the rules for this member: decide them in aws/model/decided.py"
