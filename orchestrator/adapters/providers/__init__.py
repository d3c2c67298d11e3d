"""Providers by name; each is imported when it is asked for, and no other.

A new provider is a module whose `make(context)` returns a Backing, and one line here.
"""

from __future__ import annotations

import difflib
import importlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, cast

from orchestrator.core.errors import BadRequestError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orchestrator.core.ports import Clock, DataStage, Provider, ResultStore, Stage

PROVIDERS = {
    "local": "orchestrator.adapters.providers.local.provider",
    "aws": "orchestrator.adapters.providers.aws.provider",
}

STAGED = frozenset({"aws"})
"""Those whose machines take code from an object store; told without importing any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What a provider may need of the laptop.

    Attributes:
        state_dir: where a provider keeps what it must find again after a crash.
        runtime_dir: a short private path for sockets.
        key_file: the private key that machines are reached with.
        ssh_from: the address range that may reach machines over SSH, as CIDR; empty to find this computer's own.
        environ: the user's environment.
    """

    state_dir: Path
    runtime_dir: Path
    clock: Clock
    key_file: Path
    ssh_from: str = ""
    environ: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Backing:
    """A provider, and the object store that its machines use.

    Attributes:
        stage: None where machines can't start by themselves.
        data: where machines take the laptop's data from; None where that goes to them directly.
    """

    provider: Provider
    store: ResultStore
    stage: Stage | None
    data: DataStage | None = None


def open_backing(name: str, context: Context) -> Backing:
    """Import a provider and make it.

    Raises:
        BadRequestError: there is none of this name.
    """
    module = PROVIDERS.get(name)
    if module is None:
        near = difflib.get_close_matches(name.lower(), PROVIDERS, n=1)
        raise BadRequestError(
            f"there is no provider {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""),
            why=f"kedge knows: {', '.join(PROVIDERS)}",
            fix="choose one of those with --provider, or in the job file under resources: infra",
        )
    return cast("Backing", importlib.import_module(module).make(context))
