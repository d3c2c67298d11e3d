"""The virtual environment of `setup` and `run`, at `<root>/env`: pip installs into it on every image, as any user.

It is made once, on top of the Python whose torch drives the GPUs, else of the image's, which stays as it is: it may
belong to root (inferred: dlami-pytorch-is-roots), or to the system's packager (fact: externally-managed). At home
(provider local) the laptop has said on top of which Python: that of the user's own environment, as a rule.
"""

from __future__ import annotations

import dataclasses
import os
import re
import secrets
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from .activation import Activation, Default
from .errors import AgentError
from .files import read_json, write_json
from .layout import Layout
from .pips import ensure_pip, offer_uv
from .pythonenv import Package, PythonFacts, ask_python, make_virtual_environment
from .torchenv import Torch, environment, read_torch
from .wheels import INDEX
from .wire import LOCAL, MachineConfig

# Of torch's version, where it is a tag of its index: AMD's own builds have more to say there.
_TAG = re.compile(r"\+(cu\d{3}|rocm\d+\.\d+(?:\.\d+)?)$")
_CONSTRAINTS = "constraints.txt"
_UV_INDEXES = ("UV_INDEX", "UV_EXTRA_INDEX_URL", "UV_INDEX_URL", "UV_DEFAULT_INDEX", "UV_TORCH_BACKEND")


@dataclass(frozen=True)
class JobEnvironment:
    """The environment that is there.

    Attributes:
        base: the Python on which it was made.
        identity: another one for each time that it is made.
        torches: the base's torch and what belongs to it: name -> version. Empty where no GPU depends on them.
        index: where others that suit this torch can be had.
        has_pip: pip can be imported in it.
    """

    base: str
    identity: str
    torches: dict[str, str] = field(default_factory=dict)
    index: str = ""
    has_pip: bool = False


def folder_of(layout: Layout) -> Path:
    """Return where it is."""
    return layout.root / "env"


def read_job_environment(layout: Layout) -> JobEnvironment | None:
    """Read what `ensure_job_environment` has made; None where there is none."""
    content = read_json(layout.note("env"))
    return JobEnvironment(**content) if content and folder_of(layout).exists() else None


def ensure_job_environment(
    layout: Layout, machine: MachineConfig, *, python: str = "", with_pip: bool
) -> JobEnvironment | None:
    """Make it where it isn't there, or was made on another Python; None at home where the laptop names no Python.

    Args:
        layout: the machine's folder.
        machine: its `path` is where the image's torch was found.
        python: on top of which it is made; empty for the one that is found here.
        with_pip: pip is brought where that Python has none, which may take a network.

    Raises:
        AgentError: it can't be made, or has no pip.
    """
    if machine.provider == LOCAL and not python:
        return None
    torch = read_torch(layout)
    base = python or (torch.python if torch else find_python(machine))
    made = read_job_environment(layout)
    if made is None or made.base != base:
        made = _make(layout, base, torch)
    if with_pip and not made.has_pip:
        # Last: an environment without pip is better than none.
        ensure_pip(folder_of(layout) / "bin/python", environment())
        made = dataclasses.replace(made, has_pip=True)
        write_json(layout.note("env"), dataclasses.asdict(made))
    return made


def _make(layout: Layout, base: str, torch: Torch | None) -> JobEnvironment:
    facts = ask_python(base, environment())
    layout.note("env").unlink(missing_ok=True)
    folder = folder_of(layout)
    make_virtual_environment(folder, facts)
    if shutil.which("uv") is None:
        offer_uv(folder / "bin")
    torches, index = _plan_constraints(torch, facts)
    made = JobEnvironment(base, secrets.token_hex(8), torches, index, facts.has_pip)
    (folder / _CONSTRAINTS).write_text(render_constraints(made))
    write_json(layout.note("env"), dataclasses.asdict(made))
    return made


def discard_job_environment(layout: Layout) -> None:
    """Take away what can't be trusted any longer; the next attempt makes it anew."""
    layout.activation_file.unlink(missing_ok=True)
    layout.note("env").unlink(missing_ok=True)
    shutil.rmtree(folder_of(layout), ignore_errors=True)


def find_python(machine: MachineConfig) -> str:
    """Return the image's Python: that with torch, which was found at boot, else the system's."""
    path = os.pathsep.join([*machine.path, os.environ.get("PATH", os.defpath)])
    return shutil.which("python3", path=path) or "python3"


def activation_of(layout: Layout, made: JobEnvironment) -> Activation:
    """Return what makes installers and Python use it; what is there already stays.

    Where GPUs depend on torch, installers keep its version, and take what is built for it from its own index.
    """
    folder = folder_of(layout)
    defaults: list[Default] = []
    if made.torches:
        # As an address: in these two variables a space ends a path.
        constraints = (folder / _CONSTRAINTS).as_uri()
        defaults += [Default(name, constraints, (name,)) for name in ("PIP_CONSTRAINT", "UV_CONSTRAINT")]
        if made.index:
            # As pip does: torch's index has a few old versions of much else.
            strategy = "UV_INDEX_STRATEGY"
            defaults.append(Default(strategy, "unsafe-best-match", (strategy, *_UV_INDEXES)))
            defaults.append(Default("UV_INDEX", made.index, _UV_INDEXES))
    return Activation((str(folder / "bin"),), {"VIRTUAL_ENV": str(folder)}, tuple(defaults))


def render_constraints(made: JobEnvironment) -> str:
    """Render what pip and uv read; the index as an addition to those that the image or the job has chosen."""
    lines = [f"--extra-index-url {made.index}"] if made.index else []
    lines += [f"{name}=={version}" for name, version in made.torches.items()]
    return "".join(f"{line}\n" for line in lines)


def find_torch(layout: Layout) -> Package | None:
    """Return the torch that is imported in it; None where there is none any more."""
    try:
        return ask_python(str(folder_of(layout) / "bin/python"), environment()).torches.get("torch")
    except AgentError:
        return None


def _plan_constraints(torch: Torch | None, facts: PythonFacts) -> tuple[dict[str, str], str]:
    if torch is None or not torch.archs:
        return {}, ""
    tag = _TAG.search(torch.torch)
    index = torch.index or (INDEX + tag.group(1) if tag else "")
    return {name: package.version for name, package in facts.torches.items()}, index
