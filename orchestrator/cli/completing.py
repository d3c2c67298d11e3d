"""Answers a shell that completes a word: `kedge __complete WORD... WORD`, the last one being completed.

The answer's first line says what there is: `words`, of which a line each follows, as NAME<tab>DESCRIPTION, or `files`
for the shell's own. It is given at every Tab: it loads no invoke, whose tasks it keeps in a file of kedge's state until
the program changes, contacts nobody, and says nothing where something is wrong.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator import __version__
from orchestrator.adapters.settings import find_state_dir
from orchestrator.core.errors import KedgeError
from orchestrator.core.printable import clean_line, find_unprintable

SHELLS = ("bash", "zsh", "fish")
FILES, WORDS = "files", "words"

_LIVE_ONLY = ("start", "stop", "sync-code", "sync-data", "attach", "ssh", "exec")
"""Commands that act on a machine; the others take runs that have ended, too."""
_OF_FILES = ("--to", "--output")
_KNOWN = {"--supervisor": ("tmux", "screen", "nohup", "systemd", "systemd-user"), "--shell": SHELLS}
_CACHE = "completion.json"

Word = tuple[str, str]
Commands = dict[str, dict[str, Any]]
"""What each command does (`says`), its flags (each with `says`, `names` and `takes_value`), and the flag of the word
that needs none (`first`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """A command line up to the cursor.

    Attributes:
        before: the words of the command, without its name.
        flag: whose value is being written; empty where none is.
        current: what of the word is there.
        lead: what stands before a value in the same word, as in `--job=`.
    """

    command: str
    before: tuple[str, ...]
    flag: str
    current: str
    lead: str


def answer(words: Sequence[str]) -> None:
    """Print what the last word can be."""
    kind, found = WORDS, list[Word]()
    try:
        kind, found = complete(list(words) or [""])
    except (KedgeError, OSError, ValueError, sqlite3.Error):
        kind = WORDS
    print("\n".join([kind, *(f"{name}\t{clean_line(says)}".rstrip() for name, says in found)]))


def complete(words: list[str]) -> tuple[str, list[Word]]:
    """Return what the last word can be: `words` with these, or `files`."""
    commands = describe_commands()
    if words[:1] in (["help"], ["--help"], ["-h"]):
        words = words[1:]
        if len(words) > 1:
            return WORDS, []
    if len(words) <= 1:
        current = "".join(words)
        own = [("--help", "say what there is"), ("--version", "say which kedge this is")]
        names = [(name, str(command["says"])) for name, command in commands.items()]
        return WORDS, _fitting(own if current.startswith("-") else names, current, is_own=True)
    if words[0] not in commands or "--" in words[1:-1]:
        return FILES, []
    command = commands[words[0]]
    line = _read_line(words, command)
    if line.flag:
        return _values(line)
    if line.current.startswith("-"):
        flags = [(name, str(flag["says"])) for flag in command["flags"] for name in flag["names"]]
        return WORDS, _fitting(flags, line.current, is_own=True)
    return WORDS, []


def describe_commands() -> Commands:
    """Return all commands: as they were written down, where the program is the same since."""
    state, stamp = find_state_dir(), _stamp()
    path = state / _CACHE if state is not None else None
    with suppress(OSError, ValueError):
        kept = json.loads(path.read_bytes()) if path is not None else {}
        if kept.get("stamp") == stamp:
            return dict(kept["commands"])
    from orchestrator.cli.command_table import command_table

    commands = command_table()
    if path is not None:
        from orchestrator.adapters.files import write_atomically

        write_atomically(path, json.dumps({"stamp": stamp, "commands": commands}).encode())
    return commands


def _stamp() -> str:
    """Return what changes whenever the program's commands may have."""
    modules = Path(__file__).parent.glob("*.py")
    return f"{__version__} {Path(__file__)} {sorted(module.stat().st_mtime_ns for module in modules)}"


def _read_line(words: Sequence[str], command: dict[str, Any]) -> _Line:
    """See where the cursor is. bash makes three words of `--job=digits`, other shells leave it one."""
    takes = {name for flag in command["flags"] if flag["takes_value"] for name in flag["names"]}
    *before, current = (word for word in words[1:] if word != "=")
    if words[-1] == "=":
        before, current = [*before, current], ""
    name, is_joined, value = current.partition("=")
    if is_joined and name in takes:
        return _Line(command=words[0], before=tuple(before), flag=name, current=value, lead=f"{name}=")
    flag = before[-1] if before and before[-1] in takes else ""
    if not flag and not current.startswith("-") and not _is_taken(before, takes):
        flag = str(command["first"])
    return _Line(command=words[0], before=tuple(before), flag=flag, current=current, lead="")


def _is_taken(before: Sequence[str], takes: set[str]) -> bool:
    """Tell whether the word that needs no flag is there already."""
    pairs = zip(("", *before), before, strict=False)
    return any(not word.startswith("-") and previous not in takes for previous, word in pairs)


def _values(line: _Line) -> tuple[str, list[Word]]:
    if line.flag in _OF_FILES or (line.flag == "--job" and "/" in line.current):
        return FILES, []
    return WORDS, [(line.lead + name, says) for name, says in _fitting(_candidates(line), line.current)]


def _candidates(line: _Line) -> Iterable[Word]:
    if line.flag == "--run":
        return _runs(live_only=line.command in _LIVE_ONLY)
    if line.flag in ("--job", "--mode"):
        return _jobs(line)
    if line.flag == "--provider":
        from orchestrator.adapters.providers import PROVIDERS

        return ((name, "") for name in PROVIDERS)
    return ((name, "") for name in _KNOWN.get(line.flag, ()))


def _runs(*, live_only: bool) -> Iterable[Word]:
    from orchestrator.adapters.run_names import run_names

    state = find_state_dir()
    return run_names(state, live_only=live_only) if state is not None else ()


def _jobs(line: _Line) -> Iterable[Word]:
    from orchestrator.adapters.jobfile.candidates import job_names, mode_names

    if line.flag == "--job":
        return ((name, "") for name in job_names(Path.cwd()))
    pairs = zip(line.before, line.before[1:], strict=False)
    job = next((word for flag, word in pairs if flag == "--job"), None)
    job = next((word[len("--job=") :] for word in line.before if word.startswith("--job=")), job)
    if job is None and line.before and not line.before[0].startswith("-"):
        job = line.before[0]
    return ((name, "") for name in mode_names(Path.cwd(), job))


def _fitting(found: Iterable[Word], current: str, *, is_own: bool = False) -> list[Word]:
    """Leave out what doesn't begin so, what can't be shown, and what would be a flag and is none."""
    return [
        (name, says)
        for name, says in found
        if name.startswith(current) and not find_unprintable(name) and (is_own or not name.startswith("-"))
    ]
