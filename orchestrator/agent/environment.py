"""What the command finds in its environment: the run contract."""

from __future__ import annotations

import os
from collections.abc import Mapping

from .layout import Layout
from .processes import MARK
from .wire import MachineConfig, RunConfig

# Of the terminal or unit that keeps the runner alive: none of the command's business.
_INTERNALS = ("TMUX", "TMUX_PANE", "STY", "WINDOW", "NOTIFY_SOCKET", "INVOCATION_ID", "JOURNAL_STREAM")
_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def render_environment(
    inherited: Mapping[str, str], layout: Layout, machine: MachineConfig, config: RunConfig, mark: str
) -> dict[str, str]:
    """Return the command's whole environment; the contract wins over the job's own variables."""
    env = {name: text for name, text in inherited.items() if not _is_internal(name)}
    env.update(config.envs)
    env.update(config.secrets)
    env.update(_contract(layout, machine, config))
    env["PATH"] = _prefixed([*machine.path, str(layout.root / "bin")], env.get("PATH") or _DEFAULT_PATH)
    if config.python_path:
        folders = [str(layout.code.resolve() / folder) for folder in config.python_path]
        env["PYTHONPATH"] = _prefixed(folders, env.get("PYTHONPATH", ""))
    env[MARK] = mark
    return env


def _contract(layout: Layout, machine: MachineConfig, config: RunConfig) -> dict[str, str]:
    return {
        "KEDGE_RUN_ID": config.run,
        "KEDGE_OUTPUT_DIR": str(layout.output),
        "KEDGE_CHECKPOINT_DIR": str(layout.checkpoints),
        "KEDGE_DEADLINE": f"{machine.deadline:.3f}".rstrip("0").rstrip("."),
        "KEDGE_NOTICE_FILE": str(layout.notice_file),
        "KEDGE_GPUS_PER_NODE": str(config.gpus_per_node),
        "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": str(max(1, int(config.grace))),
        "PYTHONUNBUFFERED": "1",
    }


def _is_internal(name: str) -> bool:
    return name in _INTERNALS or name.startswith("KEDGE_AGENT_")


def _prefixed(folders: list[str], rest: str) -> str:
    return os.pathsep.join([*folders, rest] if rest else folders)
