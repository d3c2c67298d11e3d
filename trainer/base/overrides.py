"""Typed changes of a frozen settings object, by dotted key: `--set key=value`, or a value of a TOML file. Pure."""

import dataclasses
import difflib
import math
import types
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from trainer.base.config import Settings
from trainer.base.errors import BadRequestError
from trainer.base.setting import flatten_settings, show_value

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
_NONE = "none"
Converters = dict[Any, Callable[[Any], Any]]
"""A type that a field may declare -> a function that reads a given value as that type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """A value for a setting: text from `--set`, or a value of a TOML file."""

    key: str
    value: Any
    file: Path | None = None

    def show(self, key: str, value: Any) -> str:
        """Return what the user would have to write where this assignment is."""
        if self.file is None:
            return f"--set {key}={show_value(value)}"
        return f"{key} = {_quote(value)} in {self.file}"

    def __str__(self) -> str:
        return self.show(self.key, self.value).removeprefix("--set ")


def apply_overrides(settings: S, assignments: Sequence[str]) -> S:
    """Return the settings with every `key=value` applied, left to right.

    Raises:
        BadRequestError: an unknown key (the nearest valid one is named), a value of the wrong type, or
            one out of bounds.
    """
    for assignment in assignments:
        key, separator, text = assignment.partition("=")
        if not separator:
            raise BadRequestError(
                f"--set {assignment} has no value",
                why="--set takes key=value",
                fix=f"write --set {_nearest(key, flatten_settings(settings))}=VALUE",
            )
        settings = assign(settings, Assignment(key=key.strip(), value=text.strip()))
    return settings


def assign(settings: S, given: Assignment) -> S:
    """Return the settings with one value changed.

    Raises:
        BadRequestError: as for `apply_overrides`; or the setting's type is none that can be set.
    """
    known = flatten_settings(settings)
    if given.key not in known:
        nearest = _nearest(given.key, known)
        raise BadRequestError(
            f"unknown setting {given.key}" + (f" in {given.file}" if given.file else ""),
            why=f"none of the {len(known)} settings has this name; RECIPE --help lists them",
            fix=f"did you mean {given.show(nearest, given.value)}?",
        )
    changed: S = _replace_at(settings, given.key.split("."), given)
    return changed


def parse_value(text: str, hint: Any) -> Any:
    """Read text as the type that a field declares.

    Raises:
        ValueError: the text isn't of that type; the message says what is.
        TypeError: the type is none that can be set.
    """
    return _convert(text, hint, _PARSERS)


def check_value(value: Any, hint: Any) -> Any:
    """Return a TOML value as the type that a field declares; "none" is None where that is allowed.

    Raises:
        ValueError: the value isn't of that type; the message says what is.
        TypeError: the type is none that can be set.
    """
    return _convert(value, hint, _CHECKS)


def _replace_at(node: Any, path: list[str], given: Assignment) -> Any:
    name, *rest = path
    if rest:
        return dataclasses.replace(node, **{name: _replace_at(getattr(node, name), rest, given)})
    item = next(part for part in dataclasses.fields(node) if part.name == name)
    hint = typing.get_type_hints(type(node))[name]
    read = parse_value if given.file is None else check_value
    try:
        value = read(given.value, hint)
        _check_bounds(value, item.metadata)
    except ValueError as err:
        raise BadRequestError(
            f"{given} cannot be used",
            why=f"{given.key} must be {err}",
            fix=f"its default is {given.show(given.key, getattr(node, name))}",
        ) from err
    except TypeError as err:
        raise BadRequestError(
            f"{given.key} cannot be set",
            why=f"the recipe declares it as {err}",
            fix="declare it as bool, int, float, str, Path or Literal, a tuple of these, or one of these or None",
        ) from err
    return dataclasses.replace(node, **{name: value})


def _check_bounds(value: Any, bounds: Any) -> None:
    if isinstance(value, tuple):
        for part in value:
            _check_bounds(part, bounds)
        return
    has_bounds = not (value is None or isinstance(value, str))
    minimum, above, below = (bounds.get(name) if has_bounds else None for name in ("minimum", "above", "below"))
    if minimum is not None and value < minimum:
        raise ValueError(f"at least {minimum}")
    if above is not None and value <= above:
        raise ValueError(f"greater than {above}")
    if below is not None and value >= below:
        raise ValueError(f"less than {below}")


def _quote(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else show_value(value)


def _nearest(key: str, known: dict[str, Any]) -> str:
    by_tail = {name.rpartition(".")[2]: name for name in known}
    exact = by_tail.get(key.rpartition(".")[2])
    close = difflib.get_close_matches(key, known, n=1, cutoff=0.0)
    return exact or close[0]


def _convert(given: Any, hint: Any, scalars: Converters) -> Any:
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Literal:
        return _choose(given, parts, is_text=scalars is _PARSERS)
    if origin in (typing.Union, types.UnionType):
        return _convert_union(given, parts, scalars)
    if origin is tuple:
        return _convert_tuple(given, parts, scalars)
    if hint not in scalars:
        raise TypeError(hint.__name__ if isinstance(hint, type) else str(hint))
    return scalars[hint](given)


def _choose(given: Any, choices: tuple[Any, ...], *, is_text: bool) -> Any:
    for choice in choices:
        if is_text or choice is None:
            is_chosen = given == show_value(choice) or (
                isinstance(choice, bool) and _BOOLEANS.get(given.lower()) is choice
            )
        else:
            is_chosen = type(given) is type(choice) and given == choice
        if is_chosen:
            return choice
    raise ValueError(f"one of {', '.join(map(show_value, choices))}")


def _convert_union(given: Any, hints: tuple[Any, ...], scalars: Converters) -> Any:
    if type(None) in hints and isinstance(given, str) and given.lower() == _NONE:
        return None
    wanted = []
    for hint in hints:
        if hint is type(None):
            continue
        try:
            return _convert(given, hint, scalars)
        except ValueError as err:
            wanted.append(str(err))
    raise ValueError(" or ".join([*wanted, *([_NONE] if type(None) in hints else [])]))


def _convert_tuple(given: Any, hints: tuple[Any, ...], scalars: Converters) -> Any:
    if isinstance(given, str) and scalars is _PARSERS:
        given = [part.strip() for part in given.split(",")] if given else []
    if not isinstance(given, list):
        raise ValueError("a list")  # noqa: TRY004 - of the user's file, not of a caller
    if hints[-1:] == (Ellipsis,):
        hints = hints[:1] * len(given)
    if len(given) != len(hints):
        raise ValueError(f"{len(hints)} values")
    return tuple(_convert(part, hint, scalars) for part, hint in zip(given, hints, strict=True))


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
    return _require_finite(value)


def _require_finite(value: float) -> float:
    if not math.isfinite(value):
        raise ValueError("a finite number")
    return value


def _require_text(text: str) -> str:
    """Refuse bytes of a command line that are no UTF-8: config.toml couldn't hold them."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("text in UTF-8") from None
    return text


def _require(kind: type, what: str) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if type(value) is not kind:
            raise ValueError(what)
        return value

    return check


def _check_float(value: Any) -> float:
    if type(value) not in (int, float):
        raise ValueError("a number")
    try:
        return _require_finite(float(value))
    except OverflowError:
        raise ValueError("a finite number") from None


_check_text = _require(str, "text in quotes")
_PARSERS: Converters = {
    bool: _parse_bool,
    int: _parse_int,
    float: _parse_float,
    str: _require_text,
    Path: lambda text: Path(_require_text(text)),
}
_CHECKS: Converters = {
    bool: _require(bool, "true or false"),
    int: _require(int, "a whole number"),
    float: _check_float,
    str: _check_text,
    Path: lambda value: Path(_check_text(value)),
}
