"""The command line's flags, laid over a job last."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from orchestrator.adapters.jobfile.build import Laptop
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


def lay_overrides(job: Job, overrides: Overrides, laptop: Laptop) -> Job:
    """Lay flags over a job.

    Raises:
        BadRequestError: a flag whose value can't be read; it is named.
    """
    kind = _flag("--supervisor", overrides.supervisor, parse_supervisor)
    return replace(
        job,
        resources=lay_wishes(job.resources, _wishes(overrides, laptop)),
        envs=tuple((dict(job.envs) | _given_envs(job, overrides, laptop)).items()),
        deadline=_flag("--ttl", overrides.deadline, parse_limited_duration) or job.deadline,
        budget_usd=_or(_flag("--budget", overrides.budget, parse_limited_usd), job.budget_usd),
        supervisor=replace(job.supervisor, kind=kind) if kind else job.supervisor,
    )


def parse_env_flags(overrides: Overrides, laptop: Laptop) -> dict[str, str]:
    """Parse `--env NAME=value` and `--env NAME`.

    Raises:
        BadRequestError: a name that no variable can have, or a variable that isn't set.
    """
    envs = {}
    for flag in overrides.envs:
        name, equals, value = flag.partition("=")
        _flag("--env", name, parse_variable_name)
        if not equals and name not in laptop.environ:
            raise BadRequestError(
                f"--env {name}: that variable isn't set on this computer",
                fix=f"write --env {name}=value, or set it first",
            )
        envs[name] = value if equals else laptop.environ[name]
    return envs


def _given_envs(job: Job, overrides: Overrides, laptop: Laptop) -> dict[str, str]:
    envs = parse_env_flags(overrides, laptop)
    for name in envs:
        if name in job.secrets:
            raise BadRequestError(
                f"--env {name}: the job says that this is a secret",
                why="a command line is seen by every user of the computer, and kept in the shell's history",
                fix=f"set {name} in your shell's environment instead",
            )
    return envs


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
