"""Reads constraints that AWS's models have in words only: "Up to 255 characters in length", "Valid values: a | b"."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from botocore.model import Shape, StructureShape

from tests.cloudbox.aws.model.rules import Characters, Length, Matching, NotBoth, OneOf, Rule, Span

_NUMBER = r"`?(\d[\d,]*)`?"
_LABEL = re.compile(r"^(constraints?|valid (values|ranges?|sizes)): ", re.IGNORECASE)
_VOLUMES = re.compile(r"^((?:(?:gp|io|st|sc)\d|standard)(?: and \w+)?): ?([\d,]+)\s*-\s*([\d,]+) (?:GiB|IOPS)")

_Read = Callable[[re.Match[str]], tuple[Rule, ...]]


def read(sentence: str, shape: Shape) -> tuple[Rule, ...] | None:
    """Read one sentence about a member; None where it isn't understood.

    Of a sentence that only repeats what the model has as data (a pattern, a range, an enumeration) nothing is left.
    """
    if isinstance(shape, StructureShape):
        return None
    words = _LABEL.sub("", sentence)
    if volumes := _VOLUMES.search(words.replace("`", "").replace("(default)", "")):
        return _span_of_volumes(volumes)
    for pattern, rules in _SENTENCES:
        if found := pattern.search(words):
            return rules(found)
    return () if _is_repeated(sentence, shape.metadata) else None


def _is_repeated(sentence: str, model: dict[str, Any]) -> bool:
    said = sentence.lower()
    if "pattern" in model:
        names = ("regex pattern", "characters", "unique within", "can't exceed", "must start with", "must begin")
        return any(name in said for name in names)
    if "enum" in model:
        return any(name in said for name in ("valid values", "possible values", "one of the", "one of these"))
    if "min" in model or "max" in model:
        return any(name in said for name in ("maximum", "minimum", "length", "characters", "between", "up to", "from"))
    return False


def _number(text: str) -> int:
    return int(text.replace(",", ""))


def _at_most(found: re.Match[str]) -> tuple[Rule, ...]:
    # One of two alternatives may have matched.
    return (Length(_number(found[found.lastindex or 1])),)


def _ascii_at_most(found: re.Match[str]) -> tuple[Rule, ...]:
    return (Length(_number(found[1])), Characters(r"[\x00-\x7f]"))


def _span(found: re.Match[str]) -> tuple[Rule, ...]:
    return (Span(_number(found[1]), _number(found[2])),)


def _span_of_volumes(found: re.Match[str]) -> tuple[Rule, ...]:
    kinds = tuple(found[1].split(" and "))
    return (Span(_number(found[2]), _number(found[3]), when=("VolumeType", kinds)),)


def _one_of(found: re.Match[str]) -> tuple[Rule, ...]:
    return (OneOf(tuple(re.findall(r"`([^`]+)`", found[0]))),)


def _not_both(found: re.Match[str]) -> tuple[Rule, ...]:
    return (NotBoth((found[1], found[2])),)


def _set_of_characters(found: re.Match[str]) -> tuple[Rule, ...]:
    *named, literal = re.split(r", (?:and )?", found[1], maxsplit=found[1].count(", "))
    ranges = "".join(" " if name == "spaces" else name for name in named)
    return (Characters(f"[{ranges}{re.escape(literal)}]"),)


def _no_beginning(found: re.Match[str]) -> tuple[Rule, ...]:
    return (Matching(f"(?!{re.escape(found[1])}).*", f"it may not begin with {found[1]}"),)


_SENTENCES: tuple[tuple[re.Pattern[str], _Read], ...] = tuple(
    (re.compile(pattern, re.IGNORECASE), rules)
    for pattern, rules in (
        (rf"(?:up to|maximum of|maximum length is) {_NUMBER} (?:unicode )?characters\b", _at_most),
        (rf"^maximum:? {_NUMBER} ASCII characters", _ascii_at_most),
        (rf"^(?:up to {_NUMBER}|.* up to {_NUMBER}) [a-z]+ IDs\.?$", _at_most),
        (rf"(?:you can specify a maximum of|^up to) {_NUMBER} tags", _at_most),
        (r"(?:allowed|valid) characters(?: are|:) (a-z, .*, and \S+)$", _set_of_characters),
        (r"^(?:can't|cannot|may not) (?:begin|start) with `([^`]+)`", _no_beginning),
        (rf"^minimum value of {_NUMBER}", lambda found: (Span(_number(found[1]), float("inf")),)),
        (rf"^maximum value of {_NUMBER}", lambda found: (Span(float("-inf"), _number(found[1])),)),
        (rf"^min: {_NUMBER}", lambda found: (Span(_number(found[1]), float("inf")),)),
        (rf"^max: {_NUMBER}", lambda found: (Span(float("-inf"), _number(found[1])),)),
        (rf"^{_NUMBER}`? ?- ?`?{_NUMBER} (?:MiB/s|GiB|IOPS)", _span),
        (rf"(?:between|integers from) {_NUMBER} (?:and|to) {_NUMBER}", _span),
        (r"`(\w+)` or `(\w+)`.*, but not both\.?$", _not_both),
        (r"^(?:possible values: )?`[^`|]+`(?: \| `[^`|]+`)+\.?$", _one_of),
        (r"^(?:the )?(?:possible|valid) values (?:are|include):? `[^`]+`(?:(?:, | and |, and )`[^`]+`)*\.?$", _one_of),
    )
)
