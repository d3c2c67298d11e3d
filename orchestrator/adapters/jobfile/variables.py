"""A job's variables: what the file says itself, and what it takes from the laptop's shell, by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from orchestrator.adapters.jobfile.laptop import Laptop
from orchestrator.adapters.jobfile.models import ModePart
from orchestrator.adapters.jobfile.names import parse_torch_wheel
from orchestrator.adapters.jobfile.paths import expand_variables, variables_in
from orchestrator.adapters.jobfile.problems import KeyPath
from orchestrator.adapters.jobfile.written import Written
from orchestrator.core.wire import TORCH_WHEEL


@dataclass(frozen=True, slots=True, kw_only=True)
class Variables:
    """What stands under `envs` and `secrets`.

    Attributes:
        envs: with values that are no secret: they are recorded and shown.
        inherited: names whose values are the shell's.
        secrets: names, likewise.
    """

    written: Written
    envs: dict[str, str]
    inherited: tuple[str, ...]
    secrets: tuple[str, ...]

    def expand(self, text: str, key: KeyPath) -> str:
        """Put the job's own variables into a path or an address; others stay as they are.

        Raises:
            BadRequestError: it names an inherited one: paths are recorded and shown, and addresses are contacted.
        """
        for name in variables_in(text):
            if name in self.inherited:
                raise self.written.refusal(
                    key,
                    f"${name} can't stand here",
                    why="its value is the shell's, which is kept as a secret is; paths and addresses are written down",
                    fix=f"write its value under `envs`, or give it with --env {name}=value",
                )
        return expand_variables(text, self.envs)


def read_variables(written: Written, layers: Sequence[ModePart], laptop: Laptop) -> Variables:
    """Collect the variables of a job and of what is laid over it.

    Raises:
        BadRequestError: one isn't set on the laptop, stands in both places, or isn't a job's to have.
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
            # It is kedge's to read, and goes into the user-data: no secret.
            envs[name] = _looked_up(written, laptop, "envs", name)
        else:
            _looked_up(written, laptop, "envs", name)
            inherited.append(name)
    if TORCH_WHEEL in envs:
        written.at(("envs", TORCH_WHEEL), partial(parse_torch_wheel, envs[TORCH_WHEEL]))
    secrets = tuple(dict.fromkeys(name for layer in layers for name in layer.secrets or ()))
    for name in secrets:
        _refuse_twice(written, name, merged)
        _looked_up(written, laptop, "secrets", name)
    return Variables(written=written, envs=envs, inherited=tuple(inherited), secrets=secrets)


def _refuse_twice(written: Written, name: str, envs: dict[str, str | None]) -> None:
    if name in envs:
        raise written.refusal(
            ("secrets", name),
            "this is under `envs` too",
            why="a secret is kept out of plans, logs and command lines, a variable isn't",
            fix="keep the one that is meant",
        )


def _looked_up(written: Written, laptop: Laptop, block: str, name: str) -> str:
    written.at((block, name), partial(laptop.refuse_own_credential, name))
    if name not in laptop.environ:
        raise written.refusal(
            (block, name),
            f"the variable {name} isn't set on this computer",
            why="the file gives no value, so that it is taken from there",
            fix=f"set it (export {name}=...) and run the same command again",
        )
    return laptop.environ[name]
