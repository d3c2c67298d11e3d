"""Compares a request with AWS's model of it: what is required, of which kind, how long, and what the words say."""

from __future__ import annotations

import math
from base64 import b64decode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Any

import regex
from botocore.model import ListShape, MapShape, Shape, StructureShape
from botocore.utils import parse_timestamp

from tests.cloudbox.aws.model.decided import decision_on, needed_in
from tests.cloudbox.aws.model.reader import read
from tests.cloudbox.aws.model.rules import Rule
from tests.cloudbox.aws.model.sent import Sent, wire_name
from tests.cloudbox.aws.model.texts import constraining


class Kind(StrEnum):
    """What is wrong with a parameter."""

    UNKNOWN = "unknown"
    MISSING = "missing"
    INVALID = "invalid"


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """One thing that AWS would refuse a request for; `name` is the parameter's on the wire."""

    kind: Kind
    name: str
    value: str = ""
    why: str = ""


def check(sent: Sent) -> list[Violation]:
    """Return what is wrong with a request, the gravest first.

    fact: aws-requests-match-the-model
    """
    found = [Violation(kind=Kind.UNKNOWN, name=name) for name in sent.unknown]
    if sent.operation.input_shape is not None:
        found += _Walk(sent).structure(sent.operation.input_shape, sent.params, "")
    order = list(Kind)
    return sorted(found, key=lambda each: order.index(each.kind))


@cache
def rules_of(service: str, structure: str, member: str, shape: Shape) -> tuple[Rule, ...]:
    """Return the rules that stand in a member's documentation, read or decided by hand."""
    rules: list[Rule] = []
    for sentence in constraining(shape.documentation):
        said = read(sentence, shape)
        if said is None:
            decided = decision_on(service, f"{structure}.{member}", sentence)
            said = decided.rules if decided else ()
        rules += said
    return tuple(rules)


def unread(service: str, structure: str, member: str, shape: Shape) -> list[str]:
    """Return the sentences of a member's documentation that are neither read nor decided."""
    return [
        sentence
        for sentence in constraining(shape.documentation)
        if read(sentence, shape) is None and decision_on(service, f"{structure}.{member}", sentence) is None
    ]


class _Walk:
    """One walk through a request."""

    def __init__(self, sent: Sent) -> None:
        self._service = sent.operation.service_model.service_name
        self._ec2 = sent.operation.service_model.protocol == "ec2"
        self._of_text = sent.of_text

    def structure(self, shape: StructureShape, params: Any, path: str) -> Iterator[Violation]:
        if not isinstance(params, dict):
            yield _invalid(path, params, "not a structure")
            return
        prefix = f"{path}." if path else ""
        for member in shape.required_members:
            if params.get(member) is None:
                each = shape.members[member]
                if member not in params or not _is_in_headers(each):
                    yield Violation(kind=Kind.MISSING, name=prefix + wire_name(each, member, ec2=self._ec2))
        for needed in needed_in(self._service, shape.name):
            if not any(params.get(member) is not None for member in needed.any_of):
                yield Violation(kind=Kind.MISSING, name=prefix + needed.any_of[0])
        for member, value in params.items():
            each = shape.members[member]
            name = prefix + wire_name(each, member, ec2=self._ec2)
            found = list(self.value(each, value, name))
            yield from found or self._said(shape, member, value, params, name)

    def value(self, shape: Shape, value: Any, name: str) -> Iterator[Violation]:
        match shape:
            case StructureShape():
                yield from self.structure(shape, value, name)
            case ListShape():
                yield from self._list(shape, value, name)
            case MapShape():
                for key, each in value.items():
                    yield from self.value(shape.key, key, f"{name}.key")
                    yield from self.value(shape.value, each, f"{name}.{key}")
            case _:
                if why := _wrong_kind(shape, value, self._of_text) or _wrong_value(shape, value):
                    yield _invalid(name, value, why)

    def _list(self, shape: ListShape, value: Any, name: str) -> Iterator[Violation]:
        if not isinstance(value, list):
            yield _invalid(name, value, "not a list")
            return
        if why := _wrong_size(shape, len(value), "items"):
            yield _invalid(name, value, why)
        for number, each in enumerate(value, 1):
            yield from self.value(shape.member, each, f"{name}.{number}")

    def _said(
        self, shape: StructureShape, member: str, value: Any, beside: Mapping[str, Any], name: str
    ) -> Iterator[Violation]:
        each = shape.members[member]
        for sentence in unread(self._service, shape.name, member, each):
            yield _invalid(name, value, f"nobody has told the box what this means (aws/model/decided.py): {sentence}")
        for rule in rules_of(self._service, shape.name, member, each):
            if why := rule.broken_by(value, beside):
                yield _invalid(name, value, why)


def _invalid(name: str, value: Any, why: str) -> Violation:
    return Violation(kind=Kind.INVALID, name=name, value=str(value), why=why)


def _is_in_headers(shape: Shape) -> bool:
    return shape.serialization.get("location") in ("header", "headers")


def _wrong_kind(shape: Shape, value: Any, of_text: bool) -> str | None:
    as_text = isinstance(value, str) and (of_text or "location" in shape.serialization)
    try:
        match shape.type_name:
            case "integer" | "long":
                return None if isinstance(int(value) if as_text else value, int) else "not a whole number"
            case "float" | "double":
                return None if math.isfinite(float(value)) and (as_text or not isinstance(value, str)) else "no number"
            case "boolean":
                return None if value in (("true", "false") if as_text else (True, False)) else "neither true nor false"
            case "timestamp":
                parse_timestamp(value)
            case "blob" if not _is_in_headers(shape):
                b64decode(value, validate=True)
            case "string" | "character" if not isinstance(value, str):
                return "not a text"
    except (ValueError, TypeError) as err:
        return f"not of the type {shape.type_name}: {err}"
    return None


def _wrong_value(shape: Shape, value: Any) -> str | None:
    if shape.type_name == "string":
        if shape.metadata.get("enum") and value not in shape.metadata["enum"]:
            return f"Member must satisfy enum value set: [{', '.join(shape.metadata['enum'])}]"
        if (pattern := shape.metadata.get("pattern")) and not regex.fullmatch(pattern, value):
            return f"Member must satisfy regular expression pattern: {pattern}"
        return _wrong_size(shape, len(value), "characters")
    if shape.type_name in ("integer", "long", "float", "double"):
        return _wrong_size(shape, float(value), "")
    return None


def _wrong_size(shape: Shape, size: float, of_what: str) -> str | None:
    least, most = shape.metadata.get("min", -math.inf), shape.metadata.get("max", math.inf)
    return (
        None
        if least <= size <= most
        else f"{size:g} {of_what} are not between {least:g} and {most:g}".replace("  ", " ")
    )
