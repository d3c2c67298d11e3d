"""Applies the command line's flags to a job, after its mode."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from typing import TypeVar

import msgspec

from orchestrator.adapters.jobfile.assembly.keys import merge_part, requirements_of
from orchestrator.adapters.jobfile.assembly.laptop import Laptop
from orchestrator.adapters.jobfile.overrides import Overrides
from orchestrator.adapters.jobfile.validate import validate_override
from orchestrator.adapters.jobfile.values.names import parse_variable_name
from orchestrator.adapters.jobfile.values.requirements import Requirements, merge_requirements, parse_provider
from orchestrator.core.errors import BadRequestError
from orchestrator.core.job import Job
from orchestrator.core.protocol.wire import TORCH_WHEEL
from orchestrator.core.task import Task

_T = TypeVar("_T")


def apply_overrides(job: Job, overrides: Overrides, laptop: Laptop) -> Job:
    """Apply flags to a job.

    Raises:
        BadRequestError: a flag's value is invalid; the error names the flag.
    """
    job = _apply_variables(job, overrides, laptop)
    requirements: Requirements = {}
    for each in overrides.of_keys:
        part = _flag(each.flag, partial(validate_override, each.key, each.value))
        requirements |= requirements_of(part.resources) if part.resources is not None else {}
        job = merge_part(job, part)
    if "provider" in requirements:
        requirements["provider"] = _flag(
            "--provider", partial(parse_provider, requirements["provider"], laptop.providers)
        )
    kind = job.supervisor.kind
    tasks = tuple(replace(task, supervisor=replace(task.supervisor, kind=kind)) for task in job.tasks)
    return msgspec.structs.replace(job, tasks=tasks, resources=merge_requirements(job.resources, requirements))


def given_values(overrides: Overrides) -> dict[str, str]:
    """Return the variables with values on the command line: `--env NAME=value`.

    Raises:
        BadRequestError: a name isn't valid for a variable.
    """
    split = {name: value for name, equals, value in (flag.partition("=") for flag in overrides.envs) if equals}
    for name in split:
        _flag("--env", partial(parse_variable_name, name))
    return split


def taken_names(overrides: Overrides) -> tuple[str, ...]:
    """Return the variables that take their values from this computer: `--env NAME`."""
    return tuple(dict.fromkeys(flag for flag in overrides.envs if "=" not in flag))


def _inherited_names(overrides: Overrides, laptop: Laptop) -> tuple[str, ...]:
    """Return those variables, if this computer has them and a job may have them."""
    names = taken_names(overrides)
    for name in names:
        _flag("--env", partial(parse_variable_name, name))
        _flag("--env", partial(laptop.refuse_own_credential, name))
        if name not in laptop.environ:
            raise BadRequestError(
                f"--env {name}: this variable isn't set on this computer",
                fix=f"write --env {name}=value, or set it first",
            )
    return names


def _apply_variables(job: Job, overrides: Overrides, laptop: Laptop) -> Job:
    """Apply both kinds to the job's variables; a value on the command line wins."""
    given, inherited = given_values(overrides), _inherited_names(overrides, laptop)
    for name in (*given, *inherited):
        _refuse_secret(job, name)
    envs = {name: value for name, value in job.envs if name not in inherited} | given
    names = dict.fromkeys((*job.inherited, *inherited))
    if TORCH_WHEEL in names:
        # kedge reads it and writes it into the user-data, so it isn't kept as a secret.
        envs[TORCH_WHEEL] = laptop.environ[TORCH_WHEEL]
    kept = tuple(name for name in names if name not in envs)
    return msgspec.structs.replace(
        job,
        envs=tuple(envs.items()),
        inherited=kept,
        tasks=tuple(without_variables(task, {*given, *inherited}) for task in job.tasks),
    )


def without_variables(task: Task, names: Collection[str]) -> Task:
    """Return a task without its own values of variables that the command line sets for all."""
    return replace(task, envs=tuple(pair for pair in task.envs if pair[0] not in names))


def _refuse_secret(job: Job, name: str) -> None:
    if name in job.secrets:
        raise BadRequestError(
            f"--env {name}: the job declares this variable a secret",
            why="every user of the computer can see a command line, and the shell's history keeps it",
            fix=f"set {name} in your shell's environment instead",
        )


def _flag(name: str, act: Callable[[], _T]) -> _T:
    """Call a function; if it refuses, put the flag's name into the error."""
    try:
        return act()
    except BadRequestError as err:
        raise BadRequestError(f"{name}: {err.what}", why=err.why, fix=err.fix) from err
