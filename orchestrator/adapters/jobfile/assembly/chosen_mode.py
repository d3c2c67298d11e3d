"""A mode as it is chosen on the command line: its name, and values for the variables that it names as arguments."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from orchestrator.adapters.jobfile.models import JobPart, ModePart, VariantPart
from orchestrator.adapters.jobfile.problems import quoted, suggest
from orchestrator.adapters.jobfile.values.names import is_argument
from orchestrator.core.errors import BadRequestError

_WHOLE = re.compile(r"[0-9]{1,15}")
_NUMBER = re.compile(r"(?:[0-9]{1,15}\.[0-9]{0,15}|\.[0-9]{1,15}|[0-9]{1,15})(?:[eE][-+]?[0-9]{1,2})?")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenMode:
    """A mode of a job file.

    Attributes:
        name: empty for none.
        values: what was given for its arguments.
        layers: the parts that are merged into the job, the last one wins: the mode's, and that of its arguments.
        variables: the names of its arguments.
        is_open: the time that it takes depends on the values, and it says no expected duration of its own.
    """

    name: str = ""
    values: tuple[str, ...] = ()
    layers: tuple[ModePart, ...] = ()
    variables: tuple[str, ...] = ()
    is_open: bool = False


def choose_mode(path: Path, part: JobPart, text: str | None) -> ChosenMode:
    """Find a mode of a job file.

    Args:
        path: the file.
        part: its content.
        text: as given, such as `fast` or `custom 100 512`; None for no mode.

    Raises:
        BadRequestError: there is no such mode, or the values aren't what it takes.
    """
    if text is None:
        return ChosenMode()
    name, *values = text.split() or [""]
    modes = part.modes or {}
    if name not in modes:
        names = list(modes)
        raise BadRequestError(
            f"{path} has no mode {quoted(name)}",
            why=f"its modes are {', '.join(names)}" if names else "it has no `modes`",
            fix=suggest(name, names) or "leave --mode out",
        )
    mode = modes[name] or VariantPart()
    variables = mode.arguments or ()
    _require_values(name, variables, values, {**(part.envs or {}), **(mode.envs or {})})
    if not variables:
        return ChosenMode(name=name, layers=(mode,))
    given = ModePart(envs=dict(zip(variables, values, strict=True)))
    return ChosenMode(name=name, values=tuple(values), layers=(mode, given), variables=variables, is_open=mode.is_open)


def _require_values(name: str, variables: tuple[str, ...], values: list[str], usual: Mapping[str, str | None]) -> None:
    if len(values) != len(variables):
        usage = " ".join((name, *variables))
        takes = f"{len(variables)} value{'s' if len(variables) > 1 else ''}: {', '.join(variables)}"
        raise BadRequestError(
            f"mode {name} takes {takes if variables else 'no values'}",
            why=f"{quoted(' '.join((name, *values)))} has {len(values) or 'none'}",
            fix=f'write --mode "{usage}", with a value for each name' if variables else f"write --mode {name}",
        )
    for variable, value in zip(variables, values, strict=True):
        if not is_argument(value):
            raise BadRequestError(
                f"{quoted(value)} can't be the {variable} of mode {name}",
                why="a mode's arguments are numbers or plain words: letters, digits and . + _ -",
                fix=f"give another value, or set the variable with --env {variable}=...",
            )
        _require_kind(name, variable, value, usual.get(variable) or "")


def _require_kind(name: str, variable: str, value: str, usual: str) -> None:
    """Refuse a word where the file itself has a number, such as EPOCHS: 100; and 0, unless the file's is 0."""
    for pattern, kind in ((_WHOLE, "a whole number"), (_NUMBER, "a number")):
        if pattern.fullmatch(usual):
            is_alike = pattern.fullmatch(value) and (float(value) > 0 or not float(usual))
            if not is_alike:
                raise BadRequestError(
                    f"{quoted(value)} can't be the {variable} of mode {name}",
                    why=f"the job file has {variable}: {usual}, {kind}" + (" above 0" if float(usual) else ""),
                    fix=f"give {kind} for it, or set the variable with --env {variable}=...",
                )
            return
