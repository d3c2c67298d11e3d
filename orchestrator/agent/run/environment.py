"""Builds the command's environment: the run contract, GPU variables, and the machine's Python."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..base.config import TaskContext
from ..base.files import write_atomically
from ..base.layout import Layout
from ..base.processes import PROCESS_MARKER
from ..base.wire import LOCAL, MachineConfig
from ..gpu.accelerators import find_architectures
from ..gpu.variables import CACHES, VISIBILITY, render_gpu_environment
from ..nodes.variables import id_of, node_contract, suggest_nodes
from ..python.activation import Activation, write_activation
from ..python.job_env import activation_of, read_job_environment
from ..python.torch_env import Torch, read_torch
from ..results.attempt import Resumption
from .cores import count_cores

# Variables of the runner's terminal or unit, which the command must not see.
_INTERNALS = ("TMUX", "TMUX_PANE", "STY", "WINDOW", "NOTIFY_SOCKET", "INVOCATION_ID", "JOURNAL_STREAM")
_FIRST_PORT = 29500
"""The port that torchrun and others use by default."""
_PORTS = 100
"""How many ports each task chooses from, which are its own: two that start at once don't choose the same one."""
_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def make_environment(
    context: TaskContext, folder: Path, mark: str, resumption: Resumption
) -> tuple[dict[str, str], list[str]]:
    """Return the command's whole environment in its working folder, and lines for the log about changes."""
    layout, machine, run = context.layout, context.machine, context.run
    torch = read_torch(layout)
    env = render_environment(os.environ, context, folder, mark)
    env.update(resumption.variables(context.task))
    activation = plan_activation(layout, machine, torch, env["PATH"])
    write_activation(layout, activation)
    publish_deadline(layout, machine)
    env, remarks = render_gpu_environment(
        activation.apply(env),
        _architectures(torch),
        own={**run.envs, **run.secrets, **context.config.envs},
        cache=cache_folder(layout, torch),
        mode=run.mode,
        is_local=machine.provider == LOCAL,
        gpus=context.config.gpus if run.gpus_per_node else None,
    )
    for name, place in CACHES.items():
        if Path(env.get(name, "")).is_relative_to(layout.cache):
            folder = Path(env[name]).parent if "." in place else Path(env[name])
            folder.mkdir(parents=True, exist_ok=True)
    return env, remarks


def publish_deadline(layout: Layout, machine: MachineConfig) -> None:
    """Write KEDGE_DEADLINE_FILE, unless it says the same; a command reads there that its deadline was moved."""
    content = f"{_format_deadline(machine)}\n".encode()
    try:
        if layout.deadline_file.read_bytes() == content:
            return
    except OSError:
        pass
    write_atomically(layout.deadline_file, content)


def write_shell(context: TaskContext, folder: Path, env: Mapping[str, str]) -> None:
    """Write the script with which `kedge exec --task` enters a task's folder and sets its variables, except secrets.

    Args:
        context: the task.
        folder: where its command runs.
        env: the command's environment.
    """
    # A torchrun that is started by hand doesn't join the run's machines.
    suggested = {name for name in _suggestions(context, env, 0) if not name.startswith("PET_")}
    own = {*_contract(context, 0), *suggested, *VISIBILITY, "PYTHONPATH"}
    own |= {*context.run.envs, *context.config.envs} - {*context.run.secrets, "PATH"}
    lines = [f"export {name}={shlex.quote(env[name])}" for name in sorted(own) if name in env]
    lines.append(f"cd {shlex.quote(str(folder))}")
    content = "".join(f"{line}\n" for line in lines).encode(errors="surrogateescape")
    write_atomically(context.task.shell_file, content, mode=0o600)


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


def render_environment(inherited: Mapping[str, str], context: TaskContext, folder: Path, mark: str) -> dict[str, str]:
    """Return the environment without GPU variables and programs; the contract overrides the job's own variables."""
    run = context.run
    env = {name: text for name, text in inherited.items() if not _is_internal(name)}
    env.update(run.envs)
    env.update(run.secrets)
    env.update(context.config.envs)
    first = _FIRST_PORT + _PORTS * [task.name for task in run.tasks].index(context.config.name)
    port = context.config.port or find_free_port(first)
    env.update(_contract(context, port))
    for name, text in _suggestions(context, env, port).items():
        env.setdefault(name, text)
    env["PATH"] = env.get("PATH") or _DEFAULT_PATH
    if run.python_path:
        folders = [str(folder.resolve() / path) for path in run.python_path]
        env["PYTHONPATH"] = _prefixed(folders, env.get("PYTHONPATH", ""))
    env[PROCESS_MARKER] = mark
    return env


def _architectures(torch: Torch | None) -> tuple[str, ...]:
    """Return the architectures that torch saw at boot, if it was probed; else the kernel's."""
    if torch is None:
        return find_architectures()
    return tuple(arch for arch in torch.archs if arch.startswith("gfx"))


def _contract(context: TaskContext, port: int) -> dict[str, str]:
    task, config = context.task, context.config
    return {
        **node_contract(context),
        "KEDGE_RUN_ID": context.run.run,
        "KEDGE_TASK": config.name,
        "KEDGE_TASK_ID": id_of(context.run.run, task.key),
        "KEDGE_TASKS_DIR": str(task.results.parent) if config.name else "",
        "KEDGE_OUTPUT_DIR": str(task.output),
        "KEDGE_CHECKPOINT_DIR": str(task.checkpoints),
        "KEDGE_DEADLINE": _format_deadline(context.machine),
        "KEDGE_DEADLINE_FILE": str(context.layout.deadline_file),
        "KEDGE_NOTICE_FILE": str(task.notice_file),
        "KEDGE_GPUS_PER_NODE": str(_count_gpus(context)),
        "KEDGE_PORT": str(port),
        "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": str(max(1, int(config.grace))),
        "PYTHONUNBUFFERED": "1",
    }


def _count_gpus(context: TaskContext) -> int:
    own, there = context.config.gpus, context.run.gpus_per_node
    return there if own is None else min(there, len(own))


def _suggestions(context: TaskContext, job: Mapping[str, str], port: int) -> dict[str, str]:
    """Return variables that apply unless the job sets them itself."""
    cores = count_cores(context)
    return {
        "MASTER_PORT": str(port),
        **suggest_nodes(context, job, _count_gpus(context), port),
        **({"OMP_NUM_THREADS": str(cores)} if cores is not None else {}),
    }


def find_free_port(first: int) -> int:
    """Return the first port from here on that nobody listens on, of a few; 0 if there is none."""
    for port in range(first, first + _PORTS):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("", port))
            return port
    return 0


def _format_deadline(machine: MachineConfig) -> str:
    return f"{machine.deadline_at:.3f}".rstrip("0").rstrip(".")


def _is_internal(name: str) -> bool:
    return name in _INTERNALS or name.startswith("KEDGE_AGENT_")


def _prefixed(folders: Sequence[str], rest: str) -> str:
    return os.pathsep.join([*folders, rest] if rest else folders)
