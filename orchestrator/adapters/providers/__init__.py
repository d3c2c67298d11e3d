"""The registry of providers by name. A provider's module is imported only when that provider is used.

A new provider is a module whose `make(context, **options)` returns a Backing, and one entry here. Providers with the
same API share a module; the options of their entries tell them apart.
"""

from __future__ import annotations

import difflib
import importlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, cast

from orchestrator.core.errors import BadRequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from orchestrator.adapters.sync.storage import Storage
    from orchestrator.core.checkup import Probe, ProbeResult
    from orchestrator.core.job import Resources
    from orchestrator.core.machine import Machine
    from orchestrator.core.ports import Clock, Provider
    from orchestrator.core.transfers import DataStage, ResultStore, SecretStore, Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class SignIn:
    """Where a provider's credentials are on this computer.

    Attributes:
        variables: environment variables; any of them is enough.
        files: (variable that names the file, usual path); a file may exist without credentials in it.
        how: how to get credentials, for messages.
    """

    variables: tuple[str, ...]
    how: str
    files: tuple[tuple[str, str], ...] = ()

    def may_be_there(self, environ: Mapping[str, str]) -> bool:
        """Tell whether there may be credentials, so that importing the provider's module is worthwhile."""
        paths = (Path(environ.get(name) or usual).expanduser() for name, usual in self.files)
        return any(environ.get(name, "").strip() for name in self.variables) or any(path.is_file() for path in paths)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderEntry:
    """One entry of the registry: what kedge knows of a provider without importing its module.

    Attributes:
        module: below this package.
        checks: the module, below this package, with functions: `make_probes(context, resources, **options)`
            returns the probes of `kedge doctor`; `look_at_guard(context, machine, **options)` reads back what ends a
            machine from outside; `look_at_sign_in(context, **options)` tries the credentials with one free request,
            and returns None if there are none. With `needs_reaper`, a fourth: `identify_account(context, **options)`
            returns the names of the account.
        options: keyword arguments of `make` and of the functions in `checks`.
        sign_in: None if the provider needs no credentials.
        stages: its machines may fetch code from an object store, so that its backing may have a stage.
        bills_when_off: a machine that is powered off costs as much as a running one.
        needs_reaper: only `kedge reap` ends the bill of a machine that nobody looks after.
        is_here: its machines are this computer; they see the user's own environments, and their costs aren't real.
        requirements: a module below this package; its `refuse_unsupported(resources)` contacts nothing.
    """

    module: str
    checks: str
    options: Mapping[str, object] = field(default_factory=dict)
    sign_in: SignIn | None = None
    stages: bool = False
    bills_when_off: bool = False
    needs_reaper: bool = False
    is_here: bool = False
    requirements: str = ""


def _digitalocean(name: str, endpoint: str, prefix: str, *token_names: str, sister: str = "") -> ProviderEntry:
    """Make the entry of a site with DigitalOcean's API; the names of its environment variables begin with `prefix`."""
    return ProviderEntry(
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
    "local": ProviderEntry(module="local.provider", checks="local.checks", is_here=True),
    "aws": ProviderEntry(
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
        requirements="aws.access.partitions",
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
    "lambda": ProviderEntry(
        module="lambdacloud.provider",
        checks="lambdacloud.provider",
        sign_in=SignIn(
            variables=("LAMBDA_API_KEY",),
            how="to use it, set LAMBDA_API_KEY to a key from https://cloud.lambda.ai/api-keys (docs/lambda.md)",
        ),
        stages=True,
        # fact: lambda-power-off-bills
        bills_when_off=True,
        needs_reaper=True,
        requirements="lambdacloud.offers",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What a provider needs from the laptop.

    Attributes:
        state_dir: where a provider stores what it must find again after a crash.
        runtime_dir: a short private path for sockets.
        key_file: the private SSH key for machines.
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
        store: None if results wait on the machine.
        stage: None if machines can't start at boot.
        data: where machines fetch the laptop's data from; None if it is sent to them directly.
        store_caveats: what the store exposes to a run's machine beyond that run, as shown in plans.
        require_store: raises BadRequestError if the store's keys aren't set; machines are ended without it.
        secrets: where machines that start by themselves read their secrets; None if these are sent to them over SSH.
    """

    provider: Provider
    store: ResultStore | None
    stage: Stage | None
    data: DataStage | None = None
    store_caveats: tuple[str, ...] = ()
    require_store: Callable[[], None] = lambda: None
    secrets: SecretStore | None = None

    @classmethod
    def with_storage(cls, provider: Provider, storage: Storage | None) -> Backing:
        """Back a provider with a bucket; without one, results wait on the machine."""
        if storage is None:
            return cls(provider=provider, store=None, stage=None)
        return cls(
            provider=provider,
            store=storage.results,
            stage=storage.stage,
            data=storage.data,
            store_caveats=storage.caveats,
            require_store=storage.require_keys,
        )


def open_backing(name: str, context: Context) -> Backing:
    """Import a provider and make it.

    Raises:
        BadRequestError: there is none of this name.
    """
    entry = find_entry(name)
    return cast("Backing", importlib.import_module(f"{__name__}.{entry.module}").make(context, **entry.options))


def is_here(name: str) -> bool:
    """Tell whether a provider's machines are this computer; False for an unknown provider."""
    entry = PROVIDERS.get(name)
    return entry is not None and entry.is_here


def refuse_unsupported(name: str, resources: Resources) -> None:
    """Refuse requirements that a provider can never fulfil; nothing is contacted.

    Raises:
        BadRequestError: there are such requirements, or there is no provider of this name.
    """
    if module := find_entry(name).requirements:
        importlib.import_module(f"{__name__}.{module}").refuse_unsupported(resources)


def open_probes(name: str, context: Context, resources: Resources) -> Sequence[Probe]:
    """Make the probes of one provider for `kedge doctor`.

    Args:
        name: the provider's name.
        context: what the provider needs from the laptop.
        resources: what is to be launched: its GPU, regions and market.

    Raises:
        BadRequestError: there is no provider of this name, or it can't be used at all.
    """
    entry = find_entry(name)
    module = importlib.import_module(f"{__name__}.{entry.checks}")
    return cast("Sequence[Probe]", module.make_probes(context, resources, **entry.options))


def look_at_sign_in(name: str, context: Context) -> ProbeResult:
    """Try a provider's credentials, if there may be some; else nothing is imported or contacted.

    Raises:
        KedgeError: the provider doesn't accept them.
    """
    from orchestrator.core.checkup import Verdict

    entry = find_entry(name)
    if entry.sign_in is None or not entry.sign_in.may_be_there(context.environ):
        found = None
    else:
        module = importlib.import_module(f"{__name__}.{entry.checks}")
        found = cast("ProbeResult | None", module.look_at_sign_in(context, **entry.options))
    if found is None:
        return Verdict.UNUSED, "not set up on this computer", entry.sign_in.how if entry.sign_in else ""
    return found


def look_at_guard(name: str, context: Context, machine: Machine) -> ProbeResult:
    """Read back what would end a machine from outside at its deadline; return a probe's verdict, finding and fix.

    Raises:
        KedgeError: the provider refuses, or doesn't answer.
    """
    entry = find_entry(name)
    module = importlib.import_module(f"{__name__}.{entry.checks}")
    return cast("ProbeResult", module.look_at_guard(context, machine, **entry.options))


def identify_account(name: str, context: Context) -> frozenset[str]:
    """Return the names of the account that the credentials open; two that share a name are one account.

    Raises:
        KedgeError: the credentials aren't accepted, or the provider doesn't answer.
    """
    entry = find_entry(name)
    module = importlib.import_module(f"{__name__}.{entry.checks}")
    return cast("frozenset[str]", module.identify_account(context, **entry.options))


def find_entry(name: str) -> ProviderEntry:
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
