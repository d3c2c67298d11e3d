"""Draws help: all commands in the order of a run's life, or one of them. Fits 80 columns; loads nothing slow."""

from __future__ import annotations

import inspect
import shutil
import textwrap
from collections.abc import Iterable

from invoke.collection import Collection
from invoke.parser.argument import Argument

from orchestrator.cli.command_line import flags_of

GROUPS = {
    "Set up": ("doctor", "bootstrap", "selftest", "ssh-config", "completion"),
    "Before a run": ("jobs", "job-schema", "offers", "plan"),
    "Run": ("launch", "status", "logs", "attach", "ssh", "exec", "sync-code", "sync-data"),
    "Stop and go on": ("stop", "start", "resume", "recover"),
    "End": ("fetch", "teardown", "reap", "cost"),
}
"""Every command, in the order in which a run meets them."""

COLUMNS = 80

_PASSED_ON = {"exec": " -- COMMAND", "ssh": " [-- SSH-OPTIONS]"}

_INDENT = "  "
_FLAG_COLUMNS = 24
_EXAMPLES = "Examples:"
_METAVARS = {
    "allow-secret": "NAME",
    "budget": "USD",
    "budget-usd": "USD",
    "env": "NAME=VALUE",
    "job": "JOB",
    "lines": "N",
    "max-price": "USD",
    "output": "FILE",
    "price": "USD",
    "ssh-from": "RANGE",
    "to": "FOLDER",
    "ttl": "TIME",
}
"""What stands for a flag's value, where the last word of the flag doesn't say it."""


def overview(tasks: Collection) -> str:
    """Return what `kedge` alone says: how it is used, and all commands."""
    return "\n".join(
        (
            "Usage: kedge COMMAND [options]",
            "",
            listing(tasks),
            "",
            "`kedge help COMMAND` explains a command, with examples; `kedge --version`.",
        )
    )


def listing(tasks: Collection) -> str:
    """Return the commands in their groups, with a sentence each."""
    width = max(map(len, tasks.task_names))
    groups = (
        [f"{title}:", *(f"{_INDENT}{name:<{width}}  {summary(tasks, name)}" for name in names if name in tasks.tasks)]
        for title, names in GROUPS.items()
    )
    return "\n\n".join("\n".join(lines) for lines in groups)


def summary(tasks: Collection, name: str) -> str:
    """Return a command's sentence."""
    return (inspect.getdoc(tasks[name]) or "").partition("\n")[0]


def command_help(tasks: Collection, name: str) -> str:
    """Return one command's usage, what it does, its options and examples."""
    text, _, examples = (inspect.getdoc(tasks[name]) or "").partition(_EXAMPLES)
    arguments = list(flags_of(tasks[name], name).args.values())
    room = min(shutil.get_terminal_size((COLUMNS, 0)).columns or COLUMNS, COLUMNS)
    paragraphs = (textwrap.fill(" ".join(part.split()), room) for part in text.strip().split("\n\n"))
    options = [line for argument in arguments for line in _option(_spec(argument), argument.help or "", room)]
    options += _option("-h, --help", "show this", room)
    return "\n".join(
        (
            f"Usage: kedge {name}{_positional(arguments)} [options]{_PASSED_ON.get(name, '')}",
            "",
            "\n\n".join(paragraphs),
            "",
            "Options:",
            *options,
            "",
            _EXAMPLES,
            *(f"{_INDENT}{line.strip()}" for line in examples.strip().splitlines()),
        )
    )


def _positional(arguments: Iterable[Argument]) -> str:
    first = next(iter(arguments), None)
    return f" [{_metavar(first)}]" if first is not None and first.kind is str else ""


def _spec(argument: Argument) -> str:
    names = sorted((f"-{name}" if len(name) == 1 else f"--{name}" for name in argument.names), key=len)
    return ", ".join(names) + (f" {_metavar(argument)}" if argument.takes_value else "")


def _metavar(argument: Argument) -> str:
    name = argument.names[0]
    return _METAVARS.get(name) or name.rpartition("-")[2].upper()


def _option(spec: str, text: str, room: int) -> list[str]:
    """Put a flag beside its text, or above it where it is too long for its column."""
    column = len(_INDENT) + _FLAG_COLUMNS + 2
    lines = textwrap.wrap(text, max(room - column, 20)) or [""]
    lead = f"{_INDENT}{spec}"
    if len(spec) > _FLAG_COLUMNS:
        return [lead, *(" " * column + line for line in lines)]
    return [f"{lead:<{column}}{lines[0]}".rstrip(), *(" " * column + line for line in lines[1:])]
