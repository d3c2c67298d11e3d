"""`--set key=value`: typed overrides of a frozen settings object, by dotted key. Pure."""

import dataclasses
import difflib
import math
import types
import typing
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from trainer.base.config import Settings
from trainer.base.errors import BadRequestError
from trainer.base.setting import flatten_settings

S = TypeVar("S", bound=Settings)
_BOOLEANS = {
    "true": True,
    "yes": True,
    "on": True,
    "1": True,
    "false": False,
    "no": False,
    "off": False,
    "0": False,
}


def apply_overrides(settings: S, assignments: Sequence[str]) -> S:
    """Return the settings with every `key=value` applied, left to right.

    Raises:
        BadRequestError: an unknown key (the nearest valid one is named), a value of the wrong type, or
            one out of bounds.
    """
    known = flatten_settings(settings)
    for assignment in assignments:
        key, separator, text = assignment.partition("=")
        if not separator:
            raise BadRequestError(
                f"--set {assignment} has no value",
                why="--set takes key=value",
                fix=f"write --set {_nearest(key, known)}=VALUE",
            )
        settings = _replace(settings, key.strip(), text.strip(), known)
    return settings


def parse_value(text: str, hint: Any) -> Any:
    """Read a value of the type that a field declares.

    Raises:
        ValueError: the text isn't of that type; the message says what is.
    """
    origin = typing.get_origin(hint)
    if origin is typing.Literal:
        return _parse_choice(text, [str(choice) for choice in typing.get_args(hint)])
    if origin in (typing.Union, types.UnionType):
        return _parse_optional(text, typing.get_args(hint))
    if origin is tuple:
        return tuple(parse_value(part.strip(), typing.get_args(hint)[0]) for part in text.split(","))
    return _PARSERS[hint](text)


def _replace(settings: S, key: str, text: str, known: dict[str, Any]) -> S:
    if key not in known:
        raise BadRequestError(
            f"unknown setting {key}",
            why=f"the settings are: {', '.join(known)}",
            fix=f"did you mean --set {_nearest(key, known)}={text}?",
        )
    replaced: S = _replace_at(settings, key.split("."), text, key)
    return replaced


def _replace_at(node: Any, path: list[str], text: str, key: str) -> Any:
    name, *rest = path
    if rest:
        return dataclasses.replace(node, **{name: _replace_at(getattr(node, name), rest, text, key)})
    item = next(part for part in dataclasses.fields(node) if part.name == name)
    hint = typing.get_type_hints(type(node))[name]
    try:
        value = parse_value(text, hint)
        _check_bounds(value, item.metadata)
    except ValueError as err:
        raise BadRequestError(
            f"{key}={text} cannot be used",
            why=f"{key} must be {err}",
            fix=f"its default is --set {key}={getattr(node, name)}",
        ) from err
    return dataclasses.replace(node, **{name: value})


def _check_bounds(value: Any, bounds: Any) -> None:
    if value is None:
        return
    minimum, above, below = (bounds.get(name) for name in ("minimum", "above", "below"))
    if minimum is not None and value < minimum:
        raise ValueError(f"at least {minimum}")
    if above is not None and value <= above:
        raise ValueError(f"greater than {above}")
    if below is not None and value >= below:
        raise ValueError(f"less than {below}")


def _nearest(key: str, known: dict[str, Any]) -> str:
    by_tail = {name.rpartition(".")[2]: name for name in known}
    exact = by_tail.get(key.rpartition(".")[2])
    close = difflib.get_close_matches(key, known, n=1, cutoff=0.0)
    return exact or close[0]


def _parse_choice(text: str, choices: list[str]) -> str:
    if text not in choices:
        raise ValueError(f"one of {', '.join(choices)}")
    return text


def _parse_optional(text: str, hints: tuple[Any, ...]) -> Any:
    if text.lower() == "none":
        return None
    return parse_value(text, next(hint for hint in hints if hint is not type(None)))


def _parse_bool(text: str) -> bool:
    if text.lower() not in _BOOLEANS:
        raise ValueError("true or false")
    return _BOOLEANS[text.lower()]


def _parse_int(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError("a whole number") from None


def _parse_float(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError("a number") from None
    if not math.isfinite(value):
        raise ValueError("a finite number")
    return value


_PARSERS: dict[Any, Callable[[str], Any]] = {
    bool: _parse_bool,
    int: _parse_int,
    float: _parse_float,
    str: str,
}
