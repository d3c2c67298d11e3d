"""How a command line is read: the command, its flags, and what is refused before anything happens."""

from __future__ import annotations

from itertools import product

import pytest
from invoke.context import Context
from invoke.tasks import task

from orchestrator.cli.command_line import CommandLine, Want, flags_of, read_command_line, require_passing_on
from orchestrator.cli.help import COLUMNS, GROUPS, command_help, listing, overview
from orchestrator.cli.program import namespace
from orchestrator.core.errors import BadRequestError

COMMANDS = sorted(namespace.task_names)
ACTING = {
    *("bootstrap", "fetch", "launch", "reap", "recover", "resume"),
    *("selftest", "start", "stop", "sync-code", "sync-data", "teardown", "volumes"),
}
"""What makes, changes or ends something."""


def read(*words: str, by_invoke: bool = False) -> CommandLine:
    return read_command_line(words, namespace, by_invoke=by_invoke)


def has_rehearsal(command: str) -> bool:
    return "--dry-run" in flags_of(namespace[command], command).flags


@pytest.mark.parametrize("flag", ["--dry", "-R", "--dry-run", "-n"])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_dry_run_changes_nothing_or_is_refused(command: str, flag: str) -> None:
    """Before the command or after it, for kedge and for plain invoke."""
    if command == "logs" and flag == "-n":
        return  # as in `tail -n`, and it only looks
    for words, by_invoke in product(([flag, command], [command, flag]), (False, True)):
        if has_rehearsal(command):
            assert read(*words, by_invoke=by_invoke).values["dry_run"] is True
        else:
            with pytest.raises(BadRequestError, match=r"has no --dry-run|has no flag"):
                read(*words, by_invoke=by_invoke)


def test_commands_that_spend_money_or_change_machines_have_a_dry_run() -> None:
    """Except for those that send only changed code, leave nobody a choice, or are a test."""
    assert {command for command in ACTING if not has_rehearsal(command)} == {"recover", "selftest", "sync-code"}


@pytest.mark.parametrize("words", [["--echo", "launch"], ["-e", "launch"], ["launch", "-e"], ["-w", "teardown"]])
@pytest.mark.parametrize("by_invoke", [False, True])
def test_flags_of_invoke_are_refused_and_not_ignored(words: list[str], by_invoke: bool) -> None:
    """Whoever writes one expects it to do something."""
    with pytest.raises(BadRequestError, match="no flag"):
        read(*words, by_invoke=by_invoke)


def test_plain_invoke_accepts_its_flags_for_the_place_of_the_tasks() -> None:
    """It has used them by then; kedge itself has no such flags."""
    assert read("-r", "folder", "--collection=tasks", "jobs", by_invoke=True).command == "jobs"
    with pytest.raises(BadRequestError, match="no flag -r"):
        read("-r", "folder", "jobs")


@pytest.mark.parametrize(
    "words",
    [
        ["help", "launch"],
        ["--help", "launch"],
        ["--help=launch"],
        ["-h", "launch"],
        ["launch", "-h"],
        ["launch", "--help"],
    ],
)
def test_help_can_be_asked_for_in_any_way(words: list[str]) -> None:
    """In each form that other programs have."""
    line = read(*words)
    assert (line.want, line.command) == (Want.HELP, "launch")


@pytest.mark.parametrize(
    ("words", "want"),
    [
        ([], Want.HELP),
        (["help"], Want.HELP),
        (["-h"], Want.HELP),
        (["--version"], Want.VERSION),
        (["-V"], Want.VERSION),
        (["--list"], Want.LIST),
    ],
)
def test_help_version_and_list_need_no_command(words: list[str], want: Want) -> None:
    """Without any words, help is printed."""
    line = read(*words)
    assert (line.want, line.command) == (want, "")


@pytest.mark.parametrize(
    ("words", "values"),
    [
        (["launch", "-y"], {"yes": True, "dry_run": False}),
        (["launch", "-yn"], {"yes": True, "dry_run": True}),
        (["launch", "digits", "--mode", "full"], {"job": "digits", "mode": "full"}),
        (["launch", "--job=a b", "--env", "A=1", "--env=B=2"], {"job": "a b", "env": ["A=1", "B=2"]}),
        (["logs", "-fn", "5", "digits"], {"follow": True, "lines": 5, "run": "digits"}),
        (["status", "digits-1", "--json"], {"run": "digits-1", "json": True}),
        (["extend", "digits-1", "2h", "-y"], {"run": "digits-1", "by": "2h", "until": None, "yes": True}),
        (["extend", "--until", "18:00", "digits-1"], {"run": "digits-1", "by": None, "until": "18:00"}),
        (["launch", "--job", "status"], {"job": "status"}),
        (["status"], {"run": None, "json": False}),
    ],
)
def test_flags_and_positional_values_are_read_in_all_forms(words: list[str], values: dict[str, object]) -> None:
    """Long, short, several letters behind one dash, with `=`, and by place."""
    found = read(*words).values
    assert {name: found[name] for name in values} == values


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["lunch"], "did you mean launch"),
        (["launch", "--job-file", "x"], "did you mean --job"),
        (["launch", "--jbo", "x"], "did you mean --job"),
        (["--versoin"], "did you mean --version"),
        (["status", "launch"], "one at a time"),
        (["status", "a", "b"], "what 'b' is"),
        (["extend", "a", "2h", "b"], "what 'b' is"),
        (["jobs", "a"], "what 'a' is"),
        (["launch", "--job"], "--job needs a value"),
        (["logs", "--lines", "many"], "'many' is not a whole number"),
        (["launch", "digits", "--job", "faces"], "what 'faces' is for"),
        (["launch", "--ttl", "1h", "--ttl=2h"], "its flag takes no value, or has one already"),
        (["launch", "--spot=yes"], "its flag takes no value, or has one already"),
        (["help", "nothing-like-it"], "no command"),
    ],
)
def test_unknown_and_surplus_words_are_refused_with_the_nearest_known_one(words: list[str], says: str) -> None:
    """Exit code 2, and where to look."""
    with pytest.raises(BadRequestError) as caught:
        read(*words)
    assert says in str(caught.value)
    assert "kedge help" in caught.value.fix or "&&" in caught.value.fix


def test_the_overview_has_every_command_once_on_one_screen() -> None:
    """40 lines of 80 columns, in the order of a run's life, and nothing of invoke's."""
    named = [name for names in GROUPS.values() for name in names]
    assert sorted(named) == COMMANDS
    for text in (overview(namespace), listing(namespace)):
        lines = text.splitlines()
        assert len(lines) <= 40
        assert max(map(len, lines)) <= COLUMNS
        assert [line.split()[0] for line in lines if line.startswith("  ")] == named
    assert "core" not in overview(namespace)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command_fits_and_has_its_parts(command: str) -> None:
    """Usage, options and examples; each flag has its sentence, and each command one line that ends."""
    text = command_help(namespace, command)
    lines = text.splitlines()
    assert max(map(len, lines)) <= COLUMNS
    assert lines[0].startswith(f"Usage: kedge {command}")
    assert lines[2].endswith(".")
    assert [line for line in lines if line in ("Options:", "Examples:")] == ["Options:", "Examples:"]
    assert f"  kedge {command}" in text
    assert all(argument.help for argument in flags_of(namespace[command]).args.values())


def test_a_switch_never_takes_a_positional_value() -> None:
    """Also where the switch is the task's first parameter."""
    from invoke.collection import Collection

    @task
    def switch(_context: Context, on: bool = False) -> None:
        """Switch.

        Examples:
          kedge switch
        """

    with pytest.raises(BadRequestError):
        read_command_line(["switch", "word"], Collection(switch))


@pytest.mark.parametrize("command", COMMANDS)
def test_words_after_two_dashes_are_passed_on_or_refused(command: str) -> None:
    """They are never ignored."""
    if command in ("exec", "ssh"):
        require_passing_on(command)
        assert " -- " in command_help(namespace, command)
        return
    with pytest.raises(BadRequestError, match="takes nothing after --"):
        require_passing_on(command)
