"""Builds the command's environment: the run contract, GPU variables, and the machine's Python."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..base.layout import Layout
from ..base.processes import PROCESS_MARKER
from ..base.wire import LOCAL, MachineConfig, RunConfig
from ..gpu.accelerators import find_architectures
from ..gpu.variables import CACHES, render_gpu_environment
from ..python.activation import Activation, write_activation
from ..python.job_env import activation_of, read_job_environment
from ..python.torch_env import Torch, read_torch
from ..results.attempt import Resumption

# Variables of the runner's terminal or unit, which the command must not see.
_INTERNALS = ("TMUX", "TMUX_PANE", "STY", "WINDOW", "NOTIFY_SOCKET", "INVOCATION_ID", "JOURNAL_STREAM")
_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def make_environment(
    layout: Layout, machine: MachineConfig, config: RunConfig, mark: str, resumption: Resumption
) -> tuple[dict[str, str], list[str]]:
    """Return the command's whole environment on this machine, and lines for the log about changes."""
    torch = read_torch(layout)
    env = render_environment(os.environ, layout, machine, config, mark)
    env.update(resumption.variables(layout))
    activation = plan_activation(layout, machine, torch, env["PATH"])
    write_activation(layout, activation)
    env, remarks = render_gpu_environment(
        activation.apply(env),
        _architectures(torch),
        own={**config.envs, **config.secrets},
        cache=cache_folder(layout, torch),
        mode=config.mode,
        is_local=machine.provider == LOCAL,
    )
    for name, place in CACHES.items():
        if Path(env.get(name, "")).is_relative_to(layout.cache):
            folder = Path(env[name]).parent if "." in place else Path(env[name])
            folder.mkdir(parents=True, exist_ok=True)
    return env, remarks


def plan_activation(layout: Layout, machine: MachineConfig, torch: Torch | None, path: str) -> Activation:
    """Return the variables that select this machine's programs and Python, given the PATH."""
    programs = (*machine.path, str(layout.root / "bin"))
    made = read_job_environment(layout)
    if made is not None:
        activation = activation_of(layout, made)
        return activation.replace(path=(*activation.path, *programs))
    if torch is not None and shutil.which("python3", path=_prefixed(programs, path)) != f"{torch.folder}/python3":
        # Another python3 is first on PATH, whose torch doesn't drive the GPUs.
        return Activation((torch.folder, *programs))
    return Activation(programs)


def cache_folder(layout: Layout, torch: Torch | None) -> Path:
    """Return the folder for compiled kernels of this architecture and this torch."""
    return layout.cache / (torch.key if torch else "any")


def render_environment(
    inherited: Mapping[str, str], layout: Layout, machine: MachineConfig, config: RunConfig, mark: str
) -> dict[str, str]:
    """Return the environment without GPU variables and programs; the contract overrides the job's own variables."""
    env = {name: text for name, text in inherited.items() if not _is_internal(name)}
    env.update(config.envs)
    env.update(config.secrets)
    env.update(_contract(layout, machine, config))
    env["PATH"] = env.get("PATH") or _DEFAULT_PATH
    if config.python_path:
        folders = [str(layout.code.resolve() / folder) for folder in config.python_path]
        env["PYTHONPATH"] = _prefixed(folders, env.get("PYTHONPATH", ""))
    env[PROCESS_MARKER] = mark
    return env


def _architectures(torch: Torch | None) -> tuple[str, ...]:
    """Return the architectures that torch saw at boot, if it was probed; else the kernel's."""
    if torch is None:
        return find_architectures()
    return tuple(arch for arch in torch.archs if arch.startswith("gfx"))


def _contract(layout: Layout, machine: MachineConfig, config: RunConfig) -> dict[str, str]:
    return {
        "KEDGE_RUN_ID": config.run,
        "KEDGE_OUTPUT_DIR": str(layout.output),
        "KEDGE_CHECKPOINT_DIR": str(layout.checkpoints),
        "KEDGE_DEADLINE": f"{machine.deadline_at:.3f}".rstrip("0").rstrip("."),
        "KEDGE_NOTICE_FILE": str(layout.notice_file),
        "KEDGE_GPUS_PER_NODE": str(config.gpus_per_node),
        "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": str(max(1, int(config.grace))),
        "PYTHONUNBUFFERED": "1",
    }


def _is_internal(name: str) -> bool:
    return name in _INTERNALS or name.startswith("KEDGE_AGENT_")


def _prefixed(folders: Sequence[str], rest: str) -> str:
    return os.pathsep.join([*folders, rest] if rest else folders)
