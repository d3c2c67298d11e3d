"""Validates input from outside, by hand, because a bare machine has no pydantic."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any, TypeVar

from .errors import RequestError
from .layout import NAME, Layout
from .wire import BootOrder, BootPhase, Command, DataSource, MachineConfig, RunConfig, key_of

_Record = TypeVar("_Record", RunConfig, DataSource, MachineConfig, BootOrder, BootPhase, Command)

PIN = re.compile("[0-9a-f]{64}")
"""A SHA-256 in hexadecimal."""

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def parse_run_config(raw: bytes) -> RunConfig:
    """Parse the configuration that `start` reads.

    Raises:
        RequestError: it isn't a RunConfig, or has an invalid value.
    """
    config = build(RunConfig, _load(raw, "the run's configuration"))
    _require(bool(NAME.fullmatch(config.run)), "run", "letters, digits, dot, colon, dash and underscore")
    _require(config.restarts >= 0, "restarts", "zero or more")
    _require(config.restart_after >= 0 and config.grace >= 0, "grace", "zero seconds or more")
    for variable, text in (*config.envs.items(), *config.secrets.items()):
        _require(bool(_VARIABLE.fullmatch(variable)), "envs", "names of letters, digits and underscores")
        _require("\0" not in text, variable, "text without NUL bytes")
    _check_folders(config)
    return config


def read_machine_config(layout: Layout) -> MachineConfig:
    """Read machine.json.

    Raises:
        RequestError: it is missing, or isn't a MachineConfig.
    """
    try:
        raw = layout.machine_file.read_bytes()
    except OSError as err:
        raise RequestError(
            f"{layout.machine_file} can't be read", why=str(err), fix="this machine was not set up by kedge"
        ) from err
    return build(MachineConfig, _load(raw, str(layout.machine_file)))


def read_boot_order(layout: Layout) -> BootOrder:
    """Read boot.json; an empty order if there is none.

    Raises:
        RequestError: it can't be read, or isn't a BootOrder.
    """
    try:
        raw = layout.note("boot").read_bytes()
    except FileNotFoundError:
        return BootOrder()
    except OSError as err:
        raise RequestError(f"{layout.note('boot')} can't be read", why=str(err)) from err
    order = build(BootOrder, _load(raw, str(layout.note("boot"))))
    _require(not order.code or bool(NAME.fullmatch(order.code)), "code", "a content hash")
    _require(not order.code or bool(PIN.fullmatch(order.code_sha256)), "code_sha256", "the SHA-256 of the code")
    _require(not order.start_sha256 or bool(PIN.fullmatch(order.start_sha256)), "start_sha256", "a SHA-256")
    return order


def build(kind: type[_Record], content: Mapping[str, Any]) -> _Record:
    """Build a record from a JSON object; unknown fields are ignored.

    Raises:
        RequestError: a field is missing, or has the wrong type.
    """
    values = {}
    for name, annotation in kind.fields.items():
        key = key_of(name)
        if key in content:
            values[name] = _convert(key, annotation, content[key])
        elif not hasattr(kind, name):
            raise RequestError(f"{kind.__name__} lacks {key!r}", fix="use the same version of kedge and of its agent")
    return kind(**values)


def clean_relative(path: str) -> str:
    """Return a relative path without `.` and trailing slashes.

    Raises:
        RequestError: it is empty, absolute, or leaves the folder.
    """
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if path.startswith("/") or not parts or ".." in parts or "\0" in path:
        raise RequestError(f"{path!r} is not a path inside the working folder", fix="write for example results/figures")
    return "/".join(parts)


def _load(raw: bytes, what: str) -> dict[str, Any]:
    try:
        content = json.loads(raw)
    except (ValueError, RecursionError) as err:
        raise RequestError(f"{what} is not JSON", why=str(err)) from err
    if not isinstance(content, dict):
        raise RequestError(f"{what} is not a JSON object")
    return content


def _require(holds: bool, name: str, expected: str) -> None:
    if not holds:
        raise RequestError(f"{name} is invalid", why=f"expected {expected}")


def _check_folders(config: RunConfig) -> None:
    paths = [clean_relative(path) for path in (*config.outputs, *config.data) if path]
    if config.checkpoints:
        paths.append(clean_relative(config.checkpoints))
    ordered = sorted(set(paths), key=lambda path: path.split("/"))
    for upper, lower in pairwise(ordered):
        _require(not lower.startswith(f"{upper}/"), lower, f"folders that don't contain each other: it is in {upper}")
    _require(len(ordered) == len(paths), "outputs, checkpoints and data", "each path once")
    places = [f"{clean_relative(path)}/" for path in config.data]
    for source in config.sources:
        target = f"{clean_relative(source.target)}/"
        _require(any(target.startswith(place) for place in places), "sources", "targets under data")


def _is_text(content: object) -> bool:
    return isinstance(content, str)


def _is_whole(content: object) -> bool:
    return isinstance(content, int) and not isinstance(content, bool)


def _is_number(content: object) -> bool:
    return isinstance(content, int | float) and not isinstance(content, bool) and math.isfinite(content)


def _is_flag(content: object) -> bool:
    return isinstance(content, bool)


def _is_texts(content: object) -> bool:
    return isinstance(content, list) and all(isinstance(item, str) for item in content)


def _is_text_map(content: object) -> bool:
    return isinstance(content, dict) and all(isinstance(item, str) for item in content.values())


def _is_whole_or_none(content: object) -> bool:
    return content is None or _is_whole(content)


def _is_records(content: object) -> bool:
    return isinstance(content, list) and all(isinstance(item, dict) for item in content)


def _to_sources(content: list[dict[str, Any]]) -> tuple[DataSource, ...]:
    return tuple(build(DataSource, item) for item in content)


# By annotation, as in wire.py: a check of the JSON value, and its conversion to the field's type.
_KINDS: dict[str, tuple[Callable[[object], bool], Callable[[Any], Any]]] = {
    "str": (_is_text, str),
    "int": (_is_whole, int),
    "int | None": (_is_whole_or_none, lambda content: content),
    "float": (_is_number, float),
    "tuple[str, ...]": (_is_texts, tuple),
    "Mapping[str, str]": (_is_text_map, dict),
    "bool": (_is_flag, bool),
    "tuple[DataSource, ...]": (_is_records, _to_sources),
}


def _convert(name: str, annotation: str, content: object) -> Any:
    check, convert = _KINDS[annotation]
    if not check(content):
        # The value isn't printed, because it may be a secret.
        raise RequestError(f"{name!r} has the wrong type", why=f"expected {annotation}")
    return convert(content)
