"""Providers by name; each is imported when it is asked for, and no other.

A new provider is a module with a `make(context)` and one line here.
"""

from __future__ import annotations

import difflib
import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from orchestrator.core.errors import BadRequestError

if TYPE_CHECKING:
    from orchestrator.core.ports import Clock, Provider

PROVIDERS = {
    "local": "orchestrator.adapters.providers.local.provider",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What a provider may need of the laptop.

    Attributes:
        state_dir: where a provider keeps what it must find again after a crash.
        runtime_dir: a short private path for sockets.
        key_file: the private key that machines are reached with.
    """

    state_dir: Path
    runtime_dir: Path
    clock: Clock
    key_file: Path


def open_provider(name: str, context: Context) -> Provider:
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
    return cast("Provider", importlib.import_module(module).make(context))
