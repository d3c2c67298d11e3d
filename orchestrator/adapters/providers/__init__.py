"""Providers by name; each is imported when it is asked for, and no other.

A new provider is a module whose `make(context, **options)` returns a Backing, and one line here. Where several speak
the same API, their lines share a module, and their options tell them apart.
"""

from __future__ import annotations

import difflib
import importlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, cast

from orchestrator.core.errors import BadRequestError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from orchestrator.core.checkup import Probe, Verdict
    from orchestrator.core.job import Resources
    from orchestrator.core.machine import Machine
    from orchestrator.core.ports import Clock, DataStage, Provider, ResultStore, Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class SignIn:
    """Where a provider's credentials are on this computer.

    Attributes:
        variables: of the environment; any of them is enough.
        files: each as the variable that names it and its usual path; none of them need hold credentials.
        how: what to do to have some.
    """

    variables: tuple[str, ...]
    how: str
    files: tuple[tuple[str, str], ...] = ()

    def may_be_there(self, environ: Mapping[str, str]) -> bool:
        """Tell whether it is worth to ask the provider's own module."""
        paths = (Path(environ.get(name) or usual).expanduser() for name, usual in self.files)
        return any(environ.get(name, "").strip() for name in self.variables) or any(path.is_file() for path in paths)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A line of the registry, and what is told without importing the module.

    Attributes:
        module: below this package.
        checks: the module, below this package, whose `make_probes(context, resources, **options)` looks at the user's
            account or computer for `kedge doctor`, whose `look_at_guard(context, machine, **options)` reads back
            what ends a machine from outside, and whose `look_at_sign_in(context, **options)`, where there is something
            to sign in to, tries the credentials by one question that costs nothing, and returns None without any.
        options: keyword arguments of `make` and of what `checks` has.
        sign_in: None where nobody has to.
        stages: its machines may take code from an object store.
        bills_when_off: a machine that is powered off costs as much as one that runs.
        is_here: its machines are this computer; they see the user's own environments, and their costs are a rehearsal.
        wishes: a module below this package whose `refuse_unsupported(resources)` says no before anything is contacted.
    """

    module: str
    checks: str
    options: Mapping[str, object] = field(default_factory=dict)
    sign_in: SignIn | None = None
    stages: bool = False
    bills_when_off: bool = False
    is_here: bool = False
    wishes: str = ""


def _digitalocean(name: str, endpoint: str, prefix: str, *token_names: str, sister: str = "") -> Entry:
    """Enter a site that speaks DigitalOcean's API; the names of its own variables begin with the prefix."""
    return Entry(
        module="digitalocean.provider",
        checks="digitalocean.checks",
        options={
            "name": name,
            "endpoint": endpoint,
            "endpoint_name": f"{prefix}_ENDPOINT",
            "token_names": token_names,
            "delete_token_name": f"{prefix}_DELETE_TOKEN",
            "sister": sister,
        },
        sign_in=SignIn(
            variables=token_names, how=f"to use it, set {token_names[0]} to a token as docs/digitalocean.md says"
        ),
        stages=True,
        # https://docs.digitalocean.com/products/droplets/details/pricing/, read in November 2026.
        bills_when_off=True,
    )


PROVIDERS = {
    "local": Entry(module="local.provider", checks="local.checks", is_here=True),
    "aws": Entry(
        module="aws.provider",
        checks="aws.checks",
        sign_in=SignIn(
            variables=(
                *("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE"),
                *("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI"),
            ),
            files=(("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"), ("AWS_CONFIG_FILE", "~/.aws/config")),
            how="to use it, `aws configure` or `aws sso login`, then `kedge bootstrap --provider aws`",
        ),
        stages=True,
        wishes="aws.partitions",
    ),
    "do": _digitalocean(
        "do",
        "https://api.digitalocean.com",
        "KEDGE_DIGITALOCEAN",
        "DIGITALOCEAN_ACCESS_TOKEN",
        "DIGITALOCEAN_TOKEN",
        sister="amd",
    ),
    "amd": _digitalocean("amd", "https://api.devcloud.amd.com", "KEDGE_AMD", "AMD_DEVCLOUD_TOKEN"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What a provider may need of the laptop.

    Attributes:
        state_dir: where a provider keeps what it must find again after a crash.
        runtime_dir: a short private path for sockets.
        key_file: the private key that machines are reached with.
        environ: the user's environment.
        ssh_config: the user's own OpenSSH configuration.
    """

    state_dir: Path
    runtime_dir: Path
    clock: Clock
    key_file: Path
    environ: Mapping[str, str] = field(default_factory=dict)
    ssh_config: Path = Path("~/.ssh/config")


@dataclass(frozen=True, slots=True, kw_only=True)
class Backing:
    """A provider, and the object store that its machines use.

    Attributes:
        store: None where results wait on the machine.
        stage: None where machines can't start by themselves.
        data: where machines take the laptop's data from; None where that goes to them directly.
        store_caveats: what the store exposes to a run's machine beyond that run, for whoever reads a plan.
    """

    provider: Provider
    store: ResultStore | None
    stage: Stage | None
    data: DataStage | None = None
    store_caveats: tuple[str, ...] = ()


def open_backing(name: str, context: Context) -> Backing:
    """Import a provider and make it.

    Raises:
        BadRequestError: there is none of this name.
    """
    entry = find_entry(name)
    return cast("Backing", importlib.import_module(f"{__name__}.{entry.module}").make(context, **entry.options))


def is_here(name: str) -> bool:
    """Say whether a provider's machines are this computer; of one that isn't known they aren't."""
    entry = PROVIDERS.get(name)
    return entry is not None and entry.is_here


def refuse_unsupported(name: str, resources: Resources) -> None:
    """Refuse wishes that a provider can't ever fulfil; nothing is contacted.

    Raises:
        BadRequestError: there are some, or there is no provider of this name.
    """
    if wishes := find_entry(name).wishes:
        importlib.import_module(f"{__name__}.{wishes}").refuse_unsupported(resources)


def open_probes(name: str, context: Context, resources: Resources) -> Sequence[Probe]:
    """Make the probes of one provider's checkup.

    Args:
        name: the provider's.
        context: the laptop's.
        resources: what is to be launched: its GPU, regions and market.

    Raises:
        BadRequestError: there is no provider of this name, or it can't be used at all.
    """
    entry = find_entry(name)
    module = importlib.import_module(f"{__name__}.{entry.checks}")
    return cast("Sequence[Probe]", module.make_probes(context, resources, **entry.options))


def look_at_sign_in(name: str, context: Context) -> tuple[Verdict, str, str]:
    """Try a provider's credentials, where there may be some; else nothing is imported or contacted.

    Raises:
        KedgeError: they aren't accepted.
    """
    from orchestrator.core.checkup import Verdict

    entry = find_entry(name)
    if entry.sign_in is None or not entry.sign_in.may_be_there(context.environ):
        found = None
    else:
        module = importlib.import_module(f"{__name__}.{entry.checks}")
        found = cast("tuple[Verdict, str, str] | None", module.look_at_sign_in(context, **entry.options))
    if found is None:
        return Verdict.UNUSED, "not set up on this computer", entry.sign_in.how if entry.sign_in else ""
    return found


def look_at_guard(name: str, context: Context, machine: Machine) -> tuple[Verdict, str, str]:
    """Read back what would end a machine from outside at its deadline, as a probe's verdict, finding and fix.

    Raises:
        KedgeError: it isn't told.
    """
    entry = find_entry(name)
    module = importlib.import_module(f"{__name__}.{entry.checks}")
    return cast("tuple[Verdict, str, str]", module.look_at_guard(context, machine, **entry.options))


def find_entry(name: str) -> Entry:
    """Look a provider up; nothing is imported.

    Raises:
        BadRequestError: there is none of this name.
    """
    entry = PROVIDERS.get(name)
    if entry is None:
        near = difflib.get_close_matches(name.lower(), PROVIDERS, n=1)
        raise BadRequestError(
            f"there is no provider {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""),
            why=f"kedge knows: {', '.join(PROVIDERS)}",
            fix="choose one of those with --provider, or in the job file under resources: infra",
        )
    return entry
