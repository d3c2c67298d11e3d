"""The command line's flags, laid over a job last."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from orchestrator.adapters.jobfile.laptop import Laptop
from orchestrator.adapters.jobfile.limits import parse_limited_duration, parse_limited_usd
from orchestrator.adapters.jobfile.names import parse_variable_name
from orchestrator.adapters.jobfile.wishes import (
    Wishes,
    lay_wishes,
    parse_accelerators,
    parse_disk_size,
    parse_provider,
    parse_regions,
    parse_supervisor,
    parse_word,
)
from orchestrator.core.errors import BadRequestError
from orchestrator.core.job import Job
from orchestrator.core.wire import TORCH_WHEEL

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Overrides:
    """Flags as they were typed; None for one that wasn't given.

    Attributes:
        region: one, or several with commas between them.
        disk_size: of the root disk in GiB, `256` or `256GB`.
        max_usd_per_hour: leave out what costs more.
        usd_per_hour: a price to rehearse with.
        envs: `NAME=value`, or `NAME` to take the laptop's value.
        allowed: names of kedge's own credentials that the job may have.
        allows_proxy_command: the job file may name a command that this computer runs.
    """

    provider: str | None = None
    region: str | None = None
    zone: str | None = None
    instance_type: str | None = None
    gpu: str | None = None
    use_spot: bool | None = None
    image_id: str | None = None
    disk_size: str | None = None
    max_usd_per_hour: str | None = None
    usd_per_hour: str | None = None
    deadline: str | None = None
    budget: str | None = None
    supervisor: str | None = None
    envs: tuple[str, ...] = ()
    allowed: tuple[str, ...] = ()
    allows_proxy_command: bool = False


def lay_overrides(job: Job, overrides: Overrides, laptop: Laptop) -> Job:
    """Lay flags over a job.

    Raises:
        BadRequestError: a flag whose value can't be read; it is named.
    """
    kind = _flag("--supervisor", overrides.supervisor, parse_supervisor)
    return replace(
        _lay_variables(job, overrides, laptop),
        resources=lay_wishes(job.resources, _wishes(overrides, laptop)),
        deadline=_flag("--ttl", overrides.deadline, parse_limited_duration) or job.deadline,
        budget_usd=_or(_flag("--budget", overrides.budget, parse_limited_usd), job.budget_usd),
        supervisor=replace(job.supervisor, kind=kind) if kind else job.supervisor,
    )


def given_values(overrides: Overrides) -> dict[str, str]:
    """Return the variables whose values are on the command line: `--env NAME=value`.

    Raises:
        BadRequestError: a name that no variable can have.
    """
    split = {name: value for name, equals, value in (flag.partition("=") for flag in overrides.envs) if equals}
    for name in split:
        _flag("--env", name, parse_variable_name)
    return split


def _inherited_names(overrides: Overrides, laptop: Laptop) -> tuple[str, ...]:
    """Return the variables that take this computer's value: `--env NAME`."""
    names = tuple(dict.fromkeys(flag for flag in overrides.envs if "=" not in flag))
    for name in names:
        _flag("--env", name, parse_variable_name)
        _flag("--env", name, laptop.refuse_own_credential)
        if name not in laptop.environ:
            raise BadRequestError(
                f"--env {name}: that variable isn't set on this computer",
                fix=f"write --env {name}=value, or set it first",
            )
    return names


def _lay_variables(job: Job, overrides: Overrides, laptop: Laptop) -> Job:
    """Lay both over the job's variables; a value that is given wins."""
    given, inherited = given_values(overrides), _inherited_names(overrides, laptop)
    for name in (*given, *inherited):
        _refuse_secret(job, name)
    envs = {name: value for name, value in job.envs if name not in inherited} | given
    names = dict.fromkeys((*job.inherited, *inherited))
    if TORCH_WHEEL in names:
        # It is kedge's to read, and goes into the user-data: no secret.
        envs[TORCH_WHEEL] = laptop.environ[TORCH_WHEEL]
    kept = tuple(name for name in names if name not in envs)
    return replace(job, envs=tuple(envs.items()), inherited=kept)


def _refuse_secret(job: Job, name: str) -> None:
    if name in job.secrets:
        raise BadRequestError(
            f"--env {name}: the job says that this is a secret",
            why="a command line is seen by every user of the computer, and kept in the shell's history",
            fix=f"set {name} in your shell's environment instead",
        )


def _wishes(overrides: Overrides, laptop: Laptop) -> Wishes:
    said = {
        "provider": _flag("--provider", overrides.provider, lambda name: parse_provider(name, laptop.providers)),
        "regions": _flag("--region", overrides.region, parse_regions),
        "zone": _flag("--zone", overrides.zone, parse_word),
        "instance_type": _flag("--instance-type", overrides.instance_type, parse_word),
        "accelerators": _flag("--gpu", overrides.gpu, parse_accelerators),
        "use_spot": overrides.use_spot,
        "image_id": _flag("--image-id", overrides.image_id, parse_word),
        "disk_gib": _flag("--disk-size", overrides.disk_size, parse_disk_size),
        "max_usd_per_hour": _flag("--max-price", overrides.max_usd_per_hour, parse_limited_usd),
        "usd_per_hour": _flag("--price", overrides.usd_per_hour, parse_limited_usd),
    }
    return {name: value for name, value in said.items() if value is not None}


def _flag(name: str, value: str | None, parse: Callable[[str], _T]) -> _T | None:
    if value is None:
        return None
    try:
        return parse(value)
    except BadRequestError as err:
        raise BadRequestError(f"{name}: {err.what}", why=err.why, fix=err.fix) from err


def _or(first: _T | None, second: _T | None) -> _T | None:
    return second if first is None else first
