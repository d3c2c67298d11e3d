"""Answers a shell's request for completion: `kedge __complete WORD... WORD`, to complete the last word.

The first line of the answer is `words`, followed by one line each, as NAME<tab>DESCRIPTION; or `files`, for the shell's
own completion of file names. This runs at every Tab: it doesn't load invoke but caches the commands in a file of
kedge's state, contacts nobody, and prints nothing if something is wrong.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Container, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from orchestrator import __version__
from orchestrator.adapters.host.settings import find_state_dir
from orchestrator.cli.flag_table import flags_of
from orchestrator.cli.flags import Completes, Flag
from orchestrator.core.errors import KedgeError
from orchestrator.core.values.printable import clean_line, find_unprintable

FILES, WORDS = "files", "words"

_CACHE = "completion.json"

Word = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """A command line up to the cursor.

    Attributes:
        before: the words of the command, without its name.
        flag: the flag whose value is being typed; None if there is none.
        current: the typed part of the word.
        lead: the part of the word before the value, as in `--job=`.
    """

    command: str
    before: tuple[str, ...]
    flag: Flag | None
    current: str
    lead: str


def answer(words: Sequence[str]) -> None:
    """Print the possible completions of the last word."""
    kind, found = WORDS, list[Word]()
    try:
        kind, found = complete(list(words) or [""])
    except (KedgeError, OSError, ValueError, sqlite3.Error):
        kind = WORDS
    print("\n".join([kind, *(f"{name}\t{clean_line(says)}".rstrip() for name, says in found)]))


def complete(words: list[str]) -> tuple[str, list[Word]]:
    """Return `words` with the possible completions of the last word, or `files`."""
    commands = describe_commands()
    if words[:1] in (["help"], ["--help"], ["-h"]):
        words = words[1:]
        if len(words) > 1:
            return WORDS, []
    if len(words) <= 1:
        current = "".join(words)
        own = [("--help", "list all commands"), ("--version", "print kedge's version")]
        return WORDS, _fitting(own if current.startswith("-") else commands.items(), current, is_own=True)
    if words[0] not in commands or "--" in words[1:-1]:
        return FILES, []
    line = _read_line(words)
    if line.flag is not None:
        return _values(line, line.flag)
    if line.current.startswith("-"):
        flags = [(name, flag.text(line.command)) for flag in flags_of(line.command) for name in flag.written]
        own = [(name, "show this command's help") for name in ("--help", "-h")]
        return WORDS, _fitting([*flags, *own], line.current, is_own=True)
    return WORDS, []


def describe_commands() -> dict[str, str]:
    """Return each command's description, from the cache if the program hasn't changed since."""
    state, stamp = find_state_dir(), _stamp()
    path = state / _CACHE if state is not None else None
    with suppress(OSError, ValueError):
        kept = json.loads(path.read_bytes()) if path is not None else {}
        if kept.get("stamp") == stamp:
            return dict(kept["commands"])
    from orchestrator.cli.help import summaries
    from orchestrator.cli.program import namespace

    commands = summaries(namespace)
    if path is not None:
        from orchestrator.adapters.host.files import write_atomically

        write_atomically(path, json.dumps({"stamp": stamp, "commands": commands}).encode())
    return commands


def _stamp() -> str:
    """Return a text that changes whenever the program's commands may have changed."""
    modules = Path(__file__).parent.rglob("*.py")
    return f"{__version__} {Path(__file__)} {sorted(module.stat().st_mtime_ns for module in modules)}"


def _read_line(words: Sequence[str]) -> _Line:
    """Find out where the cursor is. bash splits `--job=digits` into three words, other shells don't."""
    flags = list(flags_of(words[0]))
    takes = {name: flag for flag in flags if flag.value for name in flag.written}
    *before, current = (word for word in words[1:] if word != "=")
    if words[-1] == "=":
        before, current = [*before, current], ""
    name, is_joined, value = current.partition("=")
    if is_joined and name in takes:
        return _Line(command=words[0], before=tuple(before), flag=takes[name], current=value, lead=f"{name}=")
    flag = takes.get(before[-1]) if before else None
    if flag is None and not current.startswith("-") and not _is_taken(before, takes):
        flag = flags[0] if flags and flags[0].value else None
    return _Line(command=words[0], before=tuple(before), flag=flag, current=current, lead="")


def _is_taken(before: Sequence[str], takes: Container[str]) -> bool:
    """Tell whether the command's positional word has been given already."""
    pairs = zip(("", *before), before, strict=False)
    return any(not word.startswith("-") and previous not in takes for previous, word in pairs)


def _values(line: _Line, flag: Flag) -> tuple[str, list[Word]]:
    if flag.completes is Completes.FILES or (flag.completes is Completes.JOBS and "/" in line.current):
        return FILES, []
    return WORDS, [(line.lead + name, says) for name, says in _fitting(_candidates(line, flag), line.current)]


def _candidates(line: _Line, flag: Flag) -> Iterable[Word]:
    match flag.completes:
        case Completes.RUNS | Completes.LIVE_RUNS:
            return _runs(live_only=flag.completes is Completes.LIVE_RUNS)
        case Completes.TASKS:
            return _tasks(line)
        case Completes.JOBS | Completes.MODES:
            return _jobs(line, flag)
        case Completes.PROVIDERS:
            from orchestrator.adapters.providers import PROVIDERS

            return ((name, "") for name in PROVIDERS)
        case _:
            return ((name, "") for name in flag.choices)


def _runs(*, live_only: bool) -> Iterable[Word]:
    from orchestrator.adapters.ledger.run_names import run_names

    state = find_state_dir()
    return run_names(state, live_only=live_only) if state is not None else ()


def _tasks(line: _Line) -> Iterable[Word]:
    """List the tasks of the run that the line begins with, or of all live runs."""
    from orchestrator.adapters.ledger.run_names import task_names

    state = find_state_dir()
    run = line.before[0] if line.before and not line.before[0].startswith("-") else None
    return ((name, "") for name in task_names(state, run)) if state is not None else ()


def _jobs(line: _Line, flag: Flag) -> Iterable[Word]:
    from orchestrator.adapters.jobfile.lookup.candidates import job_names, mode_names

    if flag.completes is Completes.JOBS:
        return ((name, "") for name in job_names(Path.cwd()))
    pairs = zip(line.before, line.before[1:], strict=False)
    job = next((word for flag, word in pairs if flag == "--job"), None)
    job = next((word[len("--job=") :] for word in line.before if word.startswith("--job=")), job)
    if job is None and line.before and not line.before[0].startswith("-"):
        job = line.before[0]
    return ((name, "") for name in mode_names(Path.cwd(), job))


def _fitting(found: Iterable[Word], current: str, *, is_own: bool = False) -> list[Word]:
    """Drop words with another beginning, words that can't be shown, and words that would be mistaken for a flag."""
    return [
        (name, says)
        for name, says in found
        if name.startswith(current) and not find_unprintable(name) and (is_own or not name.startswith("-"))
    ]
