"""The table of flags: the commands that are made of it, and the keys of jobs that its flags override."""

from __future__ import annotations

import inspect
import re
from typing import get_args

import pytest
from pydantic import BaseModel

from orchestrator.adapters.jobfile.models import FlagsPart
from orchestrator.adapters.jobfile.overrides import OF_NO_KEY
from orchestrator.adapters.providers import PROVIDERS
from orchestrator.cli.commands import Command
from orchestrator.cli.flag_table import FLAGS, flags_of
from orchestrator.cli.program import namespace
from orchestrator.core.task import SupervisorKind

COMMANDS = sorted(namespace.task_names)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_takes_its_flags_by_name_and_the_jobs_as_overrides(name: str) -> None:
    """The function uses every flag that the table gives its command, and asks for no other."""
    command = namespace[name]
    assert isinstance(command, Command)
    takes = [*inspect.signature(command.body).parameters][1:]
    own = [flag.parameter for flag in flags_of(name) if not flag.overrides]
    assert sorted(takes) == sorted([*own, *(["overrides"] if len(own) < len(command.flags) else [])])


def test_a_row_names_commands_that_exist_and_no_command_has_a_flag_twice() -> None:
    """A misspelt command would hide its flag without an error."""
    named = {command for flag in FLAGS for commands in flag.says for command in commands.split()}
    assert named <= set(COMMANDS)
    for name in COMMANDS:
        written = [word for flag in flags_of(name) for word in flag.written]
        assert len(written) == len(set(written))


@pytest.mark.parametrize("key", sorted({flag.overrides for flag in FLAGS if flag.overrides}))
def test_what_a_flag_overrides_is_a_key_of_a_job(key: str) -> None:
    """The job file's models have that key, and their types read the flag's value."""
    if key in OF_NO_KEY:
        return
    model: type[BaseModel] = FlagsPart
    *blocks, last = key.split(".")
    for block in blocks:
        model = next(kind for kind in get_args(model.model_fields[block].annotation) if kind is not type(None))
    assert last in model.model_fields


@pytest.mark.parametrize("command", ["launch", "offers", "doctor", "selftest"])
def test_the_help_of_provider_names_every_provider(command: str) -> None:
    """A new one is named in the texts of its row; this computer has a checkup of its own."""
    (text,) = (flag.text(command) for flag in flags_of(command) if flag.name == "provider")
    named = set(re.findall(r"\w+", text))
    assert set(PROVIDERS) - named <= ({"local"} if command == "doctor" else set())


def test_completion_offers_exactly_the_supervisors_that_exist() -> None:
    """The table lists them itself, because it must import nothing."""
    (row,) = (flag for flag in FLAGS if flag.name == "supervisor")
    assert set(row.choices) == {str(kind) for kind in SupervisorKind}
    assert all(kind in row.text("launch") for kind in row.choices)
