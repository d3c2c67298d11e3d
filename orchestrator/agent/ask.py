"""Ask root for what the agent can't do: on a cloud's machine it is the job's user. A script decides what it may."""

from __future__ import annotations

from pathlib import Path

from .wire import MachineConfig


def script_of(machine: MachineConfig) -> Path:
    """Return root's script, which a machine at home doesn't have."""
    return Path(machine.root) / "boot/ask.sh"


def ask_root(machine: MachineConfig, *request: str) -> list[str]:
    """Return what to call; the words are those of sudoers."""
    return ["sudo", "-n", "/bin/sh", str(script_of(machine)), *request]
