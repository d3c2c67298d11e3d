"""Reads a job's variables: values written in the file, and names whose values come from the laptop's shell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from orchestrator.adapters.jobfile.assembly.laptop import Laptop
from orchestrator.adapters.jobfile.models import ModePart
from orchestrator.adapters.jobfile.problems import KeyPath
from orchestrator.adapters.jobfile.source_map import SourceMap
from orchestrator.adapters.jobfile.values.names import parse_torch_wheel
from orchestrator.adapters.jobfile.values.paths import expand_variables, variables_in
from orchestrator.core.protocol.wire import TORCH_WHEEL


@dataclass(frozen=True, slots=True, kw_only=True)
class Variables:
    """A job's `envs` and `secrets`.

    Attributes:
        envs: names and values; the values aren't secret, so they are recorded and shown.
        inherited: names under `envs` whose values come from the shell.
        secrets: names whose values come from the shell.
    """

    source_map: SourceMap
    envs: dict[str, str]
    inherited: tuple[str, ...]
    secrets: tuple[str, ...]
    laptop: Laptop

    def expand(self, text: str, key: KeyPath) -> str:
        """Expand the job's own variables in a path or an address, with the command line's values; others stay.

        Raises:
            BadRequestError: it uses an inherited variable, whose value must not be recorded or shown.
        """
        given = self.laptop.given
        for name in variables_in(text):
            if name in (*self.inherited, *self.laptop.taken) and name not in given:
                raise self.source_map.refusal(
                    key,
                    f"${name} can't be used here",
                    why="its value comes from the shell and is kept secret, but paths and addresses are recorded",
                    fix=f"write its value under `envs`, or give it with --env {name}=value",
                )
        return expand_variables(text, {**self.envs, **given})


def read_variables(source_map: SourceMap, layers: Sequence[ModePart], laptop: Laptop) -> Variables:
    """Collect the variables of all layers of a job.

    Raises:
        BadRequestError: a variable isn't set on the laptop, is in both blocks, or isn't allowed for a job.
    """
    merged: dict[str, str | None] = {}
    for layer in layers:
        merged |= layer.envs or {}
    envs: dict[str, str] = {}
    inherited: list[str] = []
    for name, said in merged.items():
        value = laptop.given.get(name) if said is None else said
        if value is not None:
            envs[name] = value
        elif name == TORCH_WHEEL:
            # kedge reads it and writes it into the user-data, so it isn't kept as a secret.
            envs[name] = _looked_up(source_map, laptop, "envs", name)
        else:
            _looked_up(source_map, laptop, "envs", name)
            inherited.append(name)
    if TORCH_WHEEL in envs:
        source_map.at(("envs", TORCH_WHEEL), partial(parse_torch_wheel, envs[TORCH_WHEEL]))
    secrets = tuple(dict.fromkeys(name for layer in layers for name in layer.secrets or ()))
    for name in secrets:
        _refuse_twice(source_map, name, merged)
        _looked_up(source_map, laptop, "secrets", name)
    return Variables(source_map=source_map, envs=envs, inherited=tuple(inherited), secrets=secrets, laptop=laptop)


def _refuse_twice(source_map: SourceMap, name: str, envs: dict[str, str | None]) -> None:
    if name in envs:
        raise source_map.refusal(
            ("secrets", name),
            "this is under `envs` too",
            why="secrets are kept out of plans, logs and command lines, variables aren't",
            fix="remove one of the two",
        )


def _looked_up(source_map: SourceMap, laptop: Laptop, block: str, name: str) -> str:
    source_map.at((block, name), partial(laptop.refuse_own_credential, name))
    if name not in laptop.environ:
        raise source_map.refusal(
            (block, name),
            f"the variable {name} isn't set on this computer",
            why="the file gives no value, so it is taken from there",
            fix=f"set it (export {name}=...) and run the same command again",
        )
    return laptop.environ[name]
