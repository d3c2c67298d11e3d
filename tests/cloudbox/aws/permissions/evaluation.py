"""Evaluate IAM policies as IAM does: actions, resources and conditions of identity policies, under a boundary.

IAM user guide, "Policy evaluation logic" and "IAM JSON policy elements: Condition operators" (November 2026). Resource
policies, session policies and service control policies aren't here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Document = Mapping[str, Any]

_VARIABLE = re.compile(r"\$\{([a-zA-Z0-9:/-]+)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """One permission that a call takes.

    Attributes:
        action: such as `ec2:RunInstances`.
        resource: an ARN, or `*` for an action without resources.
        context: the condition keys that the request has.
    """

    action: str
    resource: str = "*"
    context: Mapping[str, str] = field(default_factory=dict)


def allows(policies: Iterable[Document], boundary: Document | None, need: Need) -> bool:
    """Tell whether some policies allow what is needed; a boundary must allow it too. A Deny wins."""
    statements = [statement for policy in policies for statement in _listed(policy["Statement"])]
    if not _allow(statements, need):
        return False
    return boundary is None or _allow(_listed(boundary["Statement"]), need)


def _allow(statements: Sequence[Mapping[str, Any]], need: Need) -> bool:
    effects = {statement["Effect"] for statement in statements if _applies(statement, need)}
    return effects == {"Allow"}


def _applies(statement: Mapping[str, Any], need: Need) -> bool:
    context = {key.lower(): value for key, value in need.context.items()}
    return (
        _names(statement, "Action", need.action.lower(), str.lower)
        and _names(statement, "Resource", need.resource, lambda pattern: _fill_in(pattern, context))
        and all(
            _holds(operator, key, [_fill_in(value, context) for value in _listed(values)], context)
            for operator, keys in statement.get("Condition", {}).items()
            for key, values in keys.items()
        )
    )


def _names(statement: Mapping[str, Any], element: str, value: str, prepare: Callable[[str], str]) -> bool:
    """Tell whether an element of a statement, or its negation, names an action or a resource."""
    if f"Not{element}" in statement:
        return not any(like(value, prepare(pattern)) for pattern in _listed(statement[f"Not{element}"]))
    return any(like(value, prepare(pattern)) for pattern in _listed(statement[element]))


def _holds(operator: str, key: str, wanted: Sequence[str], context: Mapping[str, str]) -> bool:
    """Evaluate one condition; a key that the request doesn't have fails it, unless the operator is a negation.

    fact: iam-missing-key.
    """
    name = operator.removesuffix("IfExists").rpartition(":")[2]
    value = context.get(key.lower())
    if name == "Null":
        return (value is None) == (wanted[0] == "true")
    if name not in _OPERATORS:
        raise ValueError(f"the box doesn't know the condition operator {operator}")
    if value is None:
        return operator.endswith("IfExists") or operator.startswith("ForAllValues:") or "Not" in name
    found = any(_OPERATORS[name](value, each) for each in wanted)
    return not found if "Not" in name else found


def like(value: str, pattern: str) -> bool:
    """Compare with a pattern of IAM's: `*` is any text, `?` one character, nothing else is special."""
    parts = (".*" if each == "*" else "." if each == "?" else re.escape(each) for each in pattern)
    return re.fullmatch("".join(parts), value, re.DOTALL) is not None


def _equal(value: str, wanted: str) -> bool:
    return value == wanted


def _equal_words(value: str, wanted: str) -> bool:
    return value.lower() == wanted.lower()


_OPERATORS: Mapping[str, Callable[[str, str], bool]] = {
    "StringEquals": _equal,
    "StringNotEquals": _equal,
    "StringEqualsIgnoreCase": _equal_words,
    "StringLike": like,
    "StringNotLike": like,
    "ArnEquals": like,
    "ArnLike": like,
    "ArnNotLike": like,
    "Bool": _equal_words,
}


def _fill_in(text: str, context: Mapping[str, str]) -> str:
    """Put the request's values in the place of policy variables; one that it doesn't have matches nothing."""
    return _VARIABLE.sub(lambda found: context.get(found[1].lower(), "\0"), text)


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]
