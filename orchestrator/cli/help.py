"""Renders help for all commands, in the order of a run's life, or for one. Fits 80 columns; loads nothing slow."""

from __future__ import annotations

import inspect
import shutil
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from invoke.collection import Collection

from orchestrator.cli.flag_table import flags_of
from orchestrator.cli.flags import Flag

GROUPS = {
    "Set up": ("doctor", "bootstrap", "selftest", "ssh-config", "completion"),
    "Before a run": ("jobs", "job-schema", "offers", "plan", "export"),
    "Run": ("launch", "status", "logs", "attach", "ssh", "exec", "sync-code", "sync-data", "extend"),
    "Stop and go on": ("stop", "start", "resume", "recover"),
    "End": ("fetch", "teardown", "reap", "volumes", "cost"),
}
"""Every command, in the order in which a run uses them."""

COLUMNS = 80

_PASSED_ON = {"exec": " -- COMMAND", "ssh": " [-- SSH-OPTIONS]"}

_INDENT = "  "
_FLAG_COLUMNS = 24
_EXAMPLES = "Examples:"


def overview(tasks: Collection) -> str:
    """Return the output of `kedge` alone: usage, and all commands."""
    return "\n".join(
        (
            "Usage: kedge COMMAND [options]",
            "`kedge help COMMAND` explains a command, with examples; `kedge --version`.",
            "",
            listing(tasks),
        )
    )


def listing(tasks: Collection) -> str:
    """Return the commands in groups, with one sentence each."""
    width = max(map(len, tasks.task_names))
    groups = (
        [f"{title}:", *(f"{_INDENT}{name:<{width}}  {summary(tasks, name)}" for name in names if name in tasks.tasks)]
        for title, names in GROUPS.items()
    )
    return "\n\n".join("\n".join(lines) for lines in groups)


def summary(tasks: Collection, name: str) -> str:
    """Return a command's summary sentence."""
    return (inspect.getdoc(tasks[name]) or "").partition("\n")[0]


def summaries(tasks: Collection) -> dict[str, str]:
    """Return every command's summary sentence, in the order of a run's life."""
    return {name: summary(tasks, name) for names in GROUPS.values() for name in names}


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandHelp:
    """The help of one command.

    Attributes:
        says: its description in paragraphs; the first one is a sentence.
        options: how each option is written, and what it does.
    """

    name: str
    usage: str
    says: tuple[str, ...]
    options: tuple[tuple[str, str], ...]
    examples: tuple[str, ...]


def describe_command(tasks: Collection, name: str) -> CommandHelp:
    """Return the content of a command's help, for the terminal and the documentation."""
    text, _, examples = (inspect.getdoc(tasks[name]) or "").partition(_EXAMPLES)
    flags = tuple(flags_of(name))
    return CommandHelp(
        name=name,
        usage=f"kedge {name}{_positional(flags)} [options]{_PASSED_ON.get(name, '')}",
        says=tuple(" ".join(part.split()) for part in text.strip().split("\n\n")),
        options=(*((_spec(flag), flag.text(name)) for flag in flags), ("-h, --help", "show this")),
        examples=tuple(line.strip() for line in examples.strip().splitlines()),
    )


def command_help(tasks: Collection, name: str) -> str:
    """Return a command's help as the terminal shows it: usage, description, options, examples."""
    command = describe_command(tasks, name)
    room = min(shutil.get_terminal_size((COLUMNS, 0)).columns or COLUMNS, COLUMNS)
    return "\n".join(
        (
            f"Usage: {command.usage}",
            "",
            "\n\n".join(textwrap.fill(part, room) for part in command.says),
            "",
            "Options:",
            *(line for spec, text in command.options for line in _option(spec, text, room)),
            "",
            _EXAMPLES,
            *(f"{_INDENT}{line}" for line in command.examples),
        )
    )


def _positional(flags: Sequence[Flag]) -> str:
    first = [flag for flag in flags[:1] if flag.value]
    return "".join(f" [{flag.value}]" for flag in (*first, *(each for each in flags if each.positional)))


def _spec(flag: Flag) -> str:
    return ", ".join(reversed(flag.written)) + (f" {flag.value}" if flag.value else "")


def _option(spec: str, text: str, room: int) -> list[str]:
    """Put a flag beside its text, or above it if it is too long for its column."""
    column = len(_INDENT) + _FLAG_COLUMNS + 2
    lines = textwrap.wrap(text, max(room - column, 20)) or [""]
    lead = f"{_INDENT}{spec}"
    if len(spec) > _FLAG_COLUMNS:
        return [lead, *(" " * column + line for line in lines)]
    return [f"{lead:<{column}}{lines[0]}".rstrip(), *(" " * column + line for line in lines[1:])]
