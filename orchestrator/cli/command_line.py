"""Parses a command line: one command, its name or file, its flags, and what follows `--`.

invoke knows the tasks and parses their flags. The rest of its command line isn't used: it chains tasks, and its own
flags (`--echo`, `--warn-only`, `--dry`) are for shell commands, which no task here runs. Ignoring
`--dry` would do the most harm, so it means `--dry-run` here, and is refused if a command has none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from invoke.collection import Collection
from invoke.exceptions import ParseError
from invoke.parser.argument import Argument
from invoke.parser.context import ParserContext
from invoke.parser.parser import Parser
from invoke.tasks import Task

from orchestrator.cli.flag_table import flags_of as table_of
from orchestrator.core.errors import BadRequestError

_REHEARSAL = ("-R", "--dry", "-n", "--dry-run")
_FINDS_TASKS = ("-r", "--search-root", "-c", "--collection")
"""Flags of plain `invoke` that take a value: it has used them to find tasks.py."""


_PASS_ON = ("exec", "ssh")
"""Commands that pass on what follows `--`: a command for the machine, or options for OpenSSH."""


class Want(Enum):
    """What a command line asks the program to do."""

    RUN = auto()
    HELP = auto()
    LIST = auto()
    VERSION = auto()


_ASKS = {
    **dict.fromkeys(("-h", "--help", "help"), Want.HELP),
    **dict.fromkeys(("-V", "--version"), Want.VERSION),
    **dict.fromkeys(("-l", "--list"), Want.LIST),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandLine:
    """A parsed command line.

    Attributes:
        command: its name; empty if none was given.
        values: keyword arguments of the command's task.
    """

    want: Want
    command: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)


def read_command_line(words: Sequence[str], tasks: Collection, *, by_invoke: bool = False) -> CommandLine:
    """Parse the words before a `--`.

    Args:
        words: the arguments, without the program's name.
        tasks: the existing commands.
        by_invoke: the words were given to plain `invoke`, and may contain its flags for finding tasks.

    Raises:
        BadRequestError: a word is unknown, or not allowed in its place.
    """
    rest = list(words)
    want, rehearse = _read_lead(rest, by_invoke=by_invoke)
    if want in {Want.VERSION, Want.LIST}:
        return CommandLine(want=want)
    if not rest:
        return CommandLine(want=Want.HELP)
    command = _require_command(rest.pop(0), tasks)
    if want is Want.HELP:
        return CommandLine(want=want, command=command)
    return _read_flags(command, rest, tasks, rehearse=rehearse)


def _read_lead(rest: list[str], *, by_invoke: bool) -> tuple[Want, bool]:
    """Remove the words before the command, and return what they ask for, and whether they ask for a dry run."""
    want, rehearse = Want.RUN, False
    while rest[:1] == ["help"] or (rest and rest[0].startswith("-")):
        word, _, value = rest.pop(0).partition("=")
        if word in _ASKS:
            want = _ASKS[word]
            rest[:0] = [value] if value else []
        elif word in _REHEARSAL:
            rehearse = True
        elif by_invoke and word in _FINDS_TASKS:
            del rest[: 0 if value else 1]
        else:
            raise _unknown_flag(word, by_invoke=by_invoke)
    return want, rehearse


def require_passing_on(command: str) -> None:
    """Refuse a `--` that would be ignored.

    Raises:
        BadRequestError: the command passes nothing on.
    """
    if command not in _PASS_ON:
        raise BadRequestError(
            f"`{f'kedge {command}'.strip()}` takes nothing after --",
            why="only these commands do: " + " and ".join(_PASS_ON),
            fix="leave it out",
        )


def flags_of(task: Task[Any], name: str = "") -> ParserContext:
    """Return a task's flags as invoke parses them."""
    return ParserContext(name=name or task.name, args=task.get_arguments())


def _read_flags(command: str, words: list[str], tasks: Collection, *, rehearse: bool) -> CommandLine:
    context = flags_of(tasks[command], command)
    own = ParserContext(args=[Argument(names=("help", "h"), kind=bool), Argument(names=("dry", "R"), kind=bool)])
    named = name_positional(words, context, tasks)
    try:
        asked, read = Parser(initial=own, contexts=[context]).parse_argv([command, *named])
    except ParseError as err:
        raise _explain(str(err), command, context) from err
    except ValueError as err:
        # Python's own error message ends with the value. Only whole numbers are converted here.
        value = str(err).rpartition(": ")[2]
        raise BadRequestError(f"{value} is not a whole number", fix=_see(command)) from err
    if asked.args["help"].value:
        return CommandLine(want=Want.HELP, command=command)
    values = dict(read.as_kwargs)
    if rehearse or asked.args["dry"].value:
        if "dry_run" not in values:
            raise BadRequestError(
                f"`kedge {command}` has no --dry-run",
                why="it would ignore the flag, and act",
                fix=f"leave the flag out; `kedge help {command}` says what it does",
            )
        values["dry_run"] = True
    return CommandLine(want=Want.RUN, command=command, values=values)


def name_positional(words: Sequence[str], context: ParserContext, tasks: Collection) -> list[str]:
    """Rewrite `status RUN --json` as `status --run RUN --json`.

    invoke has no optional positional arguments: a word that no flag takes becomes the command's first argument.

    Raises:
        BadRequestError: the command takes no such word, or no second one; or the word is another command.
    """
    named: list[str] = []
    free = _positional_flags(context)
    wants_value = False
    for word in words:
        if wants_value or word.startswith("-"):
            wants_value = not wants_value and _wants_value(word, context)
        else:
            if not free or word in tasks.task_names:
                raise _one_too_many(word, context, tasks)
            named.append(f"--{free.pop(0)}")
        named.append(word)
    return named


def _positional_flags(context: ParserContext) -> list[str]:
    """Name the flags whose values may be given without their names: the first, if it takes one, and marked ones."""
    first = next(iter(context.args.values()), None)
    if first is None or first.kind is not str:
        return []
    return [first.names[0], *(flag.name for flag in table_of(str(context.name)) if flag.positional)]


def _wants_value(word: str, context: ParserContext) -> bool:
    # Letters can be combined, as in `logs -fn 5`: the last one takes the value.
    flag = word if word.startswith("--") else f"-{word[-1]}"
    return flag in context.flags and bool(context.flags[flag].takes_value)


def _require_command(word: str, tasks: Collection) -> str:
    if word in tasks.task_names:
        return word
    near = _nearest(word, tasks.task_names)
    raise BadRequestError(
        f"there is no command {word!r}",
        why=f"did you mean {near}?" if near else "",
        fix="see `kedge help`",
    )


def _one_too_many(word: str, context: ParserContext, tasks: Collection) -> BadRequestError:
    if word in tasks.task_names:
        return BadRequestError(
            f"{context.name} and {word} are two commands",
            why="kedge takes one at a time",
            fix=f"give them one after the other: kedge {context.name} && kedge {word}",
        )
    return BadRequestError(f"`kedge {context.name}` does not know what {word!r} is", fix=_see(str(context.name)))


def _unknown_flag(word: str, *, by_invoke: bool) -> BadRequestError:
    near = _nearest(word, (*_ASKS, "--dry-run"))
    usual = (
        "of invoke's own flags only those that find tasks.py are valid" if by_invoke else "a command's flags follow it"
    )
    what = f"there is no flag {word} before a command"
    return BadRequestError(what, why=f"did you mean {near}?" if near else usual, fix="see `kedge help`")


def _explain(said: str, command: str, context: ParserContext) -> BadRequestError:
    """Translate invoke's error, with the nearest known flag."""
    word = said.split("'")[1] if said.count("'") >= 2 else ""
    if "No idea what" in said and not word.startswith("-"):
        what = f"`kedge {command}` does not know what {word!r} is for"
        return BadRequestError(what, why="its flag takes no value, or has one already", fix=_see(command))
    if "No idea what" in said:
        near = _nearest(word, context.flag_names())
        what = f"`kedge {command}` has no flag {word}"
        return BadRequestError(what, why=f"did you mean {near}?" if near else "", fix=_see(command))
    if "needed value" in said:
        flag = next((name for name, flag in context.flags.items() if repr(flag) in said), "a flag")
        return BadRequestError(f"{flag} needs a value", fix=_see(command))
    return BadRequestError(said.rstrip("!"), fix=_see(command))


def _see(command: str) -> str:
    return f"see `kedge help {command}`"


def _nearest(word: str, known: Sequence[str] | Mapping[str, Any]) -> str:
    import difflib

    return next(iter(difflib.get_close_matches(word, list(known), n=1)), "")
