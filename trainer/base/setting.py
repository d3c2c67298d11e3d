"""What one setting is: its default, its bounds, its meaning, and whether a resumed run may change it."""

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

Change = Literal["never", "announced", "freely"]
_TYPES: dict[Any, str] = {
    bool: "true | false",
    int: "whole number",
    float: "number",
    str: "text",
    Path: "path",
}


def setting(
    default: Any,
    meaning: str = "",
    *,
    minimum: float | None = None,
    above: float | None = None,
    below: float | None = None,
    change: Change = "never",
) -> Any:
    """Declare one setting with its default, its meaning and its bounds.

    Args:
        default: the value when the user sets none.
        meaning: what it does, for `python -m trainer NAME --help`: a phrase without a final stop.
        minimum: the smallest value allowed.
        above: values must be greater than this.
        below: values must be less than this.
        change: whether a resumed run may use another value. "freely": the setting doesn't affect what a step learns.
            "announced": it does, and the run says what changed. "never": the result would be silently wrong.
    """
    bounds = {"minimum": minimum, "above": above, "below": below}
    return field(default=default, metadata={**bounds, "change": change, "meaning": meaning})


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedSetting:
    """One setting of a class of settings, as `--help` prints it. `group` is what its class says about all of them."""

    key: str
    hint: Any
    default: Any
    meaning: str
    bounds: str = ""
    group: str = ""


def describe_settings(settings: Any, prefix: str = "") -> Iterator[DescribedSetting]:
    """Describe every setting of a settings object, in order of declaration; its values are the defaults."""
    hints = get_type_hints(type(settings))
    for item in dataclasses.fields(settings):
        value, key = getattr(settings, item.name), f"{prefix}{item.name}"
        if dataclasses.is_dataclass(value):
            yield from describe_settings(value, f"{key}.")
        else:
            yield DescribedSetting(
                key=key,
                hint=hints[item.name],
                default=value,
                meaning=str(item.metadata.get("meaning", "")),
                bounds=_describe_bounds(item.metadata),
                group=(type(settings).__doc__ or "").partition("\n")[0],
            )


def describe_type(hint: Any) -> str:
    """Return what a setting of this type may be, in words."""
    parts = get_args(hint)
    if get_origin(hint) is Literal:
        return " | ".join(show_value(choice) or '""' for choice in parts)
    if get_origin(hint) is tuple:
        described = [describe_type(part) for part in parts if part is not Ellipsis]
        return f"{described[0]}, ..." if Ellipsis in parts else ", ".join(described)
    if get_origin(hint) in (Union, UnionType):
        return " or ".join("none" if part is type(None) else describe_type(part) for part in parts)
    return _TYPES.get(hint, str(hint))


def show_value(value: Any) -> str:
    """Return a setting's value as `--set` takes it."""
    if isinstance(value, (tuple, list)):
        return ",".join(map(show_value, value))
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


def _describe_bounds(bounds: Mapping[str, Any]) -> str:
    words = {"minimum": "at least", "above": "greater than", "below": "less than"}
    given = {name: bounds.get(name) for name in words}
    return ", ".join(f"{words[name]} {value}" for name, value in given.items() if value is not None)


def flatten_settings(
    settings: Any, *, changes: tuple[Change, ...] = ("never", "announced", "freely")
) -> dict[str, Any]:
    """List a settings object by dotted key, in order of declaration.

    Args:
        settings: a settings dataclass.
        changes: list only settings that a resumed run may change in one of these ways.
    """
    flat: dict[str, Any] = {}
    for item in dataclasses.fields(settings):
        value = getattr(settings, item.name)
        if dataclasses.is_dataclass(value):
            inner = flatten_settings(value, changes=changes)
            flat.update({f"{item.name}.{key}": part for key, part in inner.items()})
        elif item.metadata.get("change", "never") in changes:
            flat[item.name] = value
    return flat


def list_defaults(kind: type[Any]) -> dict[str, Any]:
    """List a settings class's defaults by dotted key; settings without a default are left out."""
    flat: dict[str, Any] = {}
    for item in dataclasses.fields(kind):
        if item.default is not dataclasses.MISSING:
            flat[item.name] = item.default
        elif item.default_factory is not dataclasses.MISSING:
            value = item.default_factory()
            inner = flatten_settings(value) if dataclasses.is_dataclass(value) else {"": value}
            flat.update({f"{item.name}.{key}".rstrip("."): part for key, part in inner.items()})
    return flat
