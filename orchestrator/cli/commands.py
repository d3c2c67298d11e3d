"""Turns functions into commands. Flags come from the table; those that override the job arrive as `overrides`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from invoke.parser.argument import Argument
from invoke.tasks import Task

from orchestrator.cli.flag_table import flags_of
from orchestrator.cli.flags import Flag

if TYPE_CHECKING:
    from orchestrator.adapters.jobfile.overrides import Overrides


class Command(Task[Any]):
    """An invoke task whose flags come from the table.

    Its function takes each flag as a keyword argument, except those that override the job, which it takes together as
    `overrides` (adapters/jobfile/overrides.py).
    """

    def __init__(self, act: Callable[..., None], name: str) -> None:
        """Create the task. invoke doesn't read the function's parameters."""
        super().__init__(act, name=name, positional=(), auto_shortflags=False)

    @cached_property
    def flags(self) -> tuple[Flag, ...]:
        """Its rows of the table."""
        return tuple(flags_of(self.name))

    def get_arguments(self, ignore_unknown_help: bool | None = None) -> list[Argument]:  # noqa: ARG002 - invoke's own
        """Return the flags in the form that invoke's parser takes."""
        return [_argument(flag, flag.text(self.name)) for flag in self.flags]

    def __call__(self, *args: Any, **values: Any) -> Any:
        """Run the function; the values are those of its flags, under their Python names."""
        overriding = [flag for flag in self.flags if flag.overrides]
        given = [(flag, values.pop(flag.parameter)) for flag in overriding]
        if overriding:
            values["overrides"] = _overrides(given)
        return super().__call__(*args, **values)


def command(name: str) -> Callable[[Callable[..., None]], Command]:
    """Make a function the command with this name; its docstring is the command's help."""
    return partial(_make, name)


def _make(name: str, act: Callable[..., None]) -> Command:
    return Command(act, name)


def _overrides(values: Iterable[tuple[Flag, Any]]) -> Overrides:
    from orchestrator.adapters.jobfile.overrides import Override, Overrides

    return Overrides(
        given=tuple(
            Override(flag=f"--{flag.name}", key=flag.overrides, value=value)
            for flag, value in values
            if value not in (None, False, [])
        )
    )


def _argument(flag: Flag, text: str) -> Argument:
    kind, default = _kind(flag)
    attribute = flag.parameter if flag.parameter != flag.name else None
    return Argument(names=(flag.name, *flag.short), attr_name=attribute, kind=kind, default=default, help=text)


def _kind(flag: Flag) -> tuple[type, object]:
    """Return the type of a flag's value, and the default."""
    if not flag.value:
        return bool, False
    if flag.repeated:
        return list, []
    return (str, None) if flag.default is None else (type(flag.default), flag.default)
