"""Validates input from outside, by hand, because a bare machine has no pydantic."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any, TypeVar

from .errors import RequestError
from .layout import NAME, RESERVED, TASK_NAME, Layout
from .record import key_of
from .wire import BootOrder, BootPhase, Command, DataSource, MachineConfig, RunConfig, TaskConfig

_Record = TypeVar("_Record", RunConfig, TaskConfig, DataSource, MachineConfig, BootOrder, BootPhase, Command)

PIN = re.compile("[0-9a-f]{64}")
"""A SHA-256 in hexadecimal."""

_MODE = re.compile(r"(?:\d+-[^/]+)?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def parse_run_config(raw: bytes) -> RunConfig:
    """Parse the configuration that `start` reads.

    Raises:
        RequestError: it isn't a RunConfig, or has an invalid value.
    """
    config = build(RunConfig, _load(raw, "the run's configuration"))
    for each in (config, *config.then):
        _check_mode(each)
    sequences = [each.sequence for each in (config, *config.then)]
    _require(sequences == sorted(set(sequences)), "then", "modes in their order")
    _require(all(each.run == config.run and not each.then for each in config.then), "then", "modes of the same run")
    return config


def _check_mode(config: RunConfig) -> None:
    _require(bool(NAME.fullmatch(config.run)), "run", "letters, digits, dot, colon, dash and underscore")
    _require(config.sequence >= 0, "sequence", "zero or more")
    _require("/" not in config.mode and config.mode not in (".", ".."), "mode", "a name without slashes")
    _require(config.continues is None or bool(_MODE.fullmatch(config.continues)), "continues", "the key of a mode")
    _require(
        config.elastic is None or (len(config.elastic) == 2 and 0 < config.elastic[0] <= config.elastic[1]),
        "elastic",
        "two numbers, the least and the most",
    )
    _require(0 <= config.modes_port < 1 << 16, "modes_port", "the number of a port, or 0")
    _check_variables(config.envs, config.secrets)
    _check_tasks(config)


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
    _require(all(map(_VARIABLE.fullmatch, order.secrets)), "secrets", "names of letters, digits and underscores")
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


def _check_variables(*variables: Mapping[str, str]) -> None:
    for variable, text in (pair for each in variables for pair in each.items()):
        _require(bool(_VARIABLE.fullmatch(variable)), "envs", "names of letters, digits and underscores")
        _require("\0" not in text, variable, "text without NUL bytes")


def _check_tasks(config: RunConfig) -> None:
    names = [task.name for task in config.tasks]
    _require(bool(names) and len(set(names)) == len(names), "tasks", "one or more, each with its own name")
    for task in config.tasks:
        is_name = TASK_NAME.fullmatch(task.name) and task.name not in RESERVED
        _require(bool(is_name) if len(names) > 1 else not task.name or bool(is_name), "tasks", "names of tasks")
        _require(set(config.done) <= set(names), "done", "names of tasks")
        _require(not task.after or task.after in names, "after", "the name of another task")
        _require(task.restarts >= 0, "restarts", "zero or more")
        _require(task.restart_after >= 0 and task.grace >= 0, "grace", "zero seconds or more")
        _require(all(gpu >= 0 for gpu in task.gpus or ()), "gpus", "numbers of GPUs")
        _require(0 <= task.port < 1 << 16, "port", "the number of a port, or 0")
        _require(task.cpus is None or task.cpus > 0, "cpus", "one or more")
        _check_variables(task.envs)
        _check_folders(config, task)


def _check_folders(config: RunConfig, task: TaskConfig) -> None:
    paths = [clean_relative(path) for path in (*task.outputs, *config.data) if path]
    if task.checkpoints:
        paths.append(clean_relative(task.checkpoints))
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


def _is_text_or_none(content: object) -> bool:
    return content is None or _is_text(content)


def _is_whole_or_none(content: object) -> bool:
    return content is None or _is_whole(content)


def _is_records(content: object) -> bool:
    return isinstance(content, list) and all(isinstance(item, dict) for item in content)


def _is_numbers_or_none(content: object) -> bool:
    return content is None or (isinstance(content, list) and all(_is_whole(item) for item in content))


def _to_tasks(content: list[dict[str, Any]]) -> tuple[TaskConfig, ...]:
    return tuple(build(TaskConfig, item) for item in content)


def _to_modes(content: list[dict[str, Any]]) -> tuple[RunConfig, ...]:
    return tuple(build(RunConfig, item) for item in content)


def _to_sources(content: list[dict[str, Any]]) -> tuple[DataSource, ...]:
    return tuple(build(DataSource, item) for item in content)


# By annotation, as in wire.py: a check of the JSON value, and its conversion to the field's type.
_KINDS: dict[str, tuple[Callable[[object], bool], Callable[[Any], Any]]] = {
    "str": (_is_text, str),
    "str | None": (_is_text_or_none, lambda content: content),
    "int": (_is_whole, int),
    "int | None": (_is_whole_or_none, lambda content: content),
    "float": (_is_number, float),
    "tuple[str, ...]": (_is_texts, tuple),
    "Mapping[str, str]": (_is_text_map, dict),
    "bool": (_is_flag, bool),
    "tuple[DataSource, ...]": (_is_records, _to_sources),
    "tuple[TaskConfig, ...]": (_is_records, _to_tasks),
    "tuple[RunConfig, ...]": (_is_records, _to_modes),
    "tuple[int, ...] | None": (_is_numbers_or_none, lambda content: None if content is None else tuple(content)),
}


def _convert(name: str, annotation: str, content: object) -> Any:
    check, convert = _KINDS[annotation]
    if not check(content):
        # The value isn't printed, because it may be a secret.
        raise RequestError(f"{name!r} has the wrong type", why=f"expected {annotation}")
    return convert(content)
