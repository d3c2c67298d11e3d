"""Settings in TOML files: `--config FILE`, and OUTPUT/config.toml, which has all settings of a run.

Tables are the groups of settings: `learning_rate = 0.002` below `[optimizer]` is `optimizer.learning_rate`. TOML has no
null: "none" stands for it.
"""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from trainer.base.config import Settings
from trainer.base.errors import BadRequestError, first_line
from trainer.base.files import write_atomically
from trainer.base.overrides import Assignment, assign
from trainer.base.setting import flatten_settings, show_value

S = TypeVar("S", bound=Settings)
CONFIG_FILE = "config.toml"
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def apply_config(settings: S, path: Path) -> S:
    """Return the settings with those of a TOML file.

    Raises:
        BadRequestError: it can't be read, a key is unknown (the nearest valid one is named), or a value is of the wrong
            type or out of bounds.
    """
    for key, value in flatten_tables(_read(path)):
        settings = assign(settings, Assignment(key=key, value=value, file=path))
    return settings


def save_config(path: Path, settings: Settings) -> None:
    """Write all settings into a file with which `--config` reproduces them; atomic.

    Raises:
        BadRequestError: it can't be written.
    """
    try:
        write_atomically(path, lambda stream: stream.write(render_config(settings).encode()), durable=False)
    except OSError as err:
        raise BadRequestError(
            f"{path} cannot be written",
            why=first_line(err),
            fix="choose a folder that can be written with --output-dir",
        ) from err


def render_config(settings: Settings) -> str:
    """Render all settings as TOML, the groups in order of declaration."""
    tables: dict[str, list[str]] = {"": []}
    for key, value in flatten_settings(settings).items():
        group, _, name = key.rpartition(".")
        tables.setdefault(group, []).append(f"{_render_key(name)} = {_render_value(value)}\n")
    top = "".join(tables.pop(""))
    named = ((".".join(map(_render_key, group.split("."))), rows) for group, rows in tables.items())
    return top + "".join(f"\n[{group}]\n{''.join(rows)}" for group, rows in named)


def render_changes(settings: Settings, defaults: Settings) -> str:
    """Render the settings that differ from the recipe's defaults, with these in parentheses; empty if none does."""
    before = flatten_settings(defaults)
    changed = (
        f"{key}={show_value(value)} ({show_value(before[key])})"
        for key, value in flatten_settings(settings).items()
        if value != before[key]
    )
    return ", ".join(changed)


def flatten_tables(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted keys of nested tables with their values."""
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from flatten_tables(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as err:  # an invalid file is a ValueError, as UTF-8 errors are
        raise BadRequestError(
            f"the settings in {path} cannot be read",
            why=first_line(err),
            fix="give a TOML file, like the config.toml in a run's output folder",
        ) from err


def _render_key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else _render_text(name)


def _render_value(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(map(_render_value, value))}]"
    if isinstance(value, (bool, int, float)):
        return show_value(value)
    return _render_text(show_value(value))


def _render_text(text: str) -> str:
    """Render a basic string; JSON's escapes are TOML's, but JSON leaves DEL as it is."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
