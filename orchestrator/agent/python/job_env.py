"""The virtual environment of `setup` and `run`, at `<root>/env`: pip can install into it on any image, without root.

It is made once, on top of the Python whose torch drives the GPUs, else of the image's Python. That Python is not
changed: it may belong to root (inferred: dlami-pytorch-is-roots), or to the system's packager
(fact: externally-managed). With provider local the laptop chooses the Python, usually that of the user's own
environment.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path

from ..base.errors import AgentError
from ..base.files import read_json, write_json
from ..base.layout import Layout
from ..base.record import Record, to_json
from ..base.wire import LOCAL, MachineConfig
from .activation import Activation, Default
from .installers import ensure_pip, install_uv_stub
from .torch_env import Torch, environment, read_torch
from .virtualenv import Package, PythonFacts, ask_python, make_virtual_environment
from .wheels import INDEX

# The local part of torch's version if it is a tag of its index; AMD's own builds have more in it.
_TAG = re.compile(r"\+(cu\d{3}|rocm\d+\.\d+(?:\.\d+)?)$")
_CONSTRAINTS = "constraints.txt"
_UV_INDEXES = ("UV_INDEX", "UV_EXTRA_INDEX_URL", "UV_INDEX_URL", "UV_DEFAULT_INDEX", "UV_TORCH_BACKEND")


class JobEnvironment(Record):
    """The existing environment.

    Attributes:
        base: its base Python.
        identity: unique to each time that it is made.
        torches: the base's torch and the packages built for it: name -> version. Empty if no GPU depends on them.
        index: the package index for this build of torch.
        has_pip: whether it has pip.
    """

    base: str
    identity: str
    torches: Mapping[str, str] = {}
    index: str = ""
    has_pip: bool = False


def folder_of(layout: Layout) -> Path:
    """Return its folder."""
    return layout.root / "env"


def read_job_environment(layout: Layout) -> JobEnvironment | None:
    """Read what `ensure_job_environment` has made; None if there is no environment."""
    content = read_json(layout.note("env"))
    return JobEnvironment(**content) if content and folder_of(layout).exists() else None


def ensure_job_environment(
    layout: Layout, machine: MachineConfig, *, python: str = "", with_pip: bool
) -> JobEnvironment | None:
    """Make it if it doesn't exist or has another base Python; None with provider local if the laptop names no Python.

    Args:
        layout: the machine's folder.
        machine: its `path` has the image's Python with torch.
        python: the base Python; empty for the one that is found here.
        with_pip: install pip if the base has none, which may need the network.

    Raises:
        AgentError: it can't be made, or pip can't be installed.
    """
    if machine.provider == LOCAL and not python:
        return None
    torch = read_torch(layout)
    base = python or (torch.python if torch else find_python(machine))
    made = read_job_environment(layout)
    if made is None or made.base != base:
        made = _make(layout, base, torch)
    if with_pip and not made.has_pip:
        # Done last, because an environment without pip is better than none.
        ensure_pip(folder_of(layout) / "bin/python", environment())
        made = made.replace(has_pip=True)
        write_json(layout.note("env"), to_json(made))
    return made


def _make(layout: Layout, base: str, torch: Torch | None) -> JobEnvironment:
    facts = ask_python(base, environment())
    layout.note("env").unlink(missing_ok=True)
    folder = folder_of(layout)
    make_virtual_environment(folder, facts)
    if shutil.which("uv") is None:
        install_uv_stub(folder / "bin")
    torches, index = _plan_constraints(torch, facts)
    made = JobEnvironment(base, secrets.token_hex(8), torches, index, facts.has_pip)
    (folder / _CONSTRAINTS).write_text(render_constraints(made))
    write_json(layout.note("env"), to_json(made))
    return made


def discard_job_environment(layout: Layout) -> None:
    """Remove a damaged environment; the next attempt makes a new one."""
    layout.activation_file.unlink(missing_ok=True)
    layout.note("env").unlink(missing_ok=True)
    shutil.rmtree(folder_of(layout), ignore_errors=True)


def find_python(machine: MachineConfig) -> str:
    """Return the image's Python: the one with torch that was found at boot, else the system's."""
    path = os.pathsep.join([*machine.path, os.environ.get("PATH", os.defpath)])
    return shutil.which("python3", path=path) or "python3"


def activation_of(layout: Layout, made: JobEnvironment) -> Activation:
    """Return the variables that make installers and Python use it; variables that are already set stay.

    If GPUs depend on torch, installers are constrained to its version, and to its own index for packages built for it.
    """
    folder = folder_of(layout)
    defaults: list[Default] = []
    if made.torches:
        # As a URL, because a space ends a path in these two variables.
        constraints = (folder / _CONSTRAINTS).as_uri()
        defaults += [Default(name, constraints, (name,)) for name in ("PIP_CONSTRAINT", "UV_CONSTRAINT")]
        if made.index:
            # As pip does: torch's index has old versions of many other packages.
            strategy = "UV_INDEX_STRATEGY"
            defaults.append(Default(strategy, "unsafe-best-match", (strategy, *_UV_INDEXES)))
            defaults.append(Default("UV_INDEX", made.index, _UV_INDEXES))
    return Activation((str(folder / "bin"),), {"VIRTUAL_ENV": str(folder)}, tuple(defaults))


def render_constraints(made: JobEnvironment) -> str:
    """Render the constraints file for pip and uv; the index is in addition to those of the image or the job."""
    lines = [f"--extra-index-url {made.index}"] if made.index else []
    lines += [f"{name}=={version}" for name, version in made.torches.items()]
    return "".join(f"{line}\n" for line in lines)


def find_torch(layout: Layout) -> Package | None:
    """Return the torch that can be imported in it; None if there is none any more."""
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
