"""A machine that has just been born, with a real sshd: it shows a host key that came with its user-data."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from dataclasses import replace
from pathlib import Path

import psutil

from orchestrator.core.machine import SshAddress
from tests.adapters.remote.sshd import Sshd, wait_until

_OWN = "ssh_host_ed25519_key"
_BORN_WITH = "ssh_host_ecdsa_key"


class NewbornSshd(Sshd):
    """It has no key of its own yet, and would show one, as sshd does by default on a machine."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.keys = folder / "ssh"
        self.keys.mkdir()
        born_with = self.keys / _BORN_WITH
        subprocess.run(["ssh-keygen", "-q", "-t", "ecdsa", "-N", "", "-C", "", "-f", str(born_with)], check=True)
        self.host_key = Path(f"{born_with}.pub").read_text().strip()
        config = folder / "config"
        lines = [line for line in config.read_text().splitlines() if not line.startswith("HostKey ")]
        lines += [f'HostKey "{self.keys / name}"' for name in (_BORN_WITH, _OWN)]
        config.write_text("\n".join(lines) + "\n")

    @property
    def address(self) -> SshAddress:
        return replace(super().address, provisional=True)

    def force(self, command: str) -> None:
        """Answer every command of later connections with this one; none lifts it."""
        lines = [line for line in (self.folder / "config").read_text().splitlines() if "ForceCommand" not in line]
        lines += [f"ForceCommand {command}"] if command else []
        (self.folder / "config").write_text("\n".join(lines) + "\n")
        os.kill(self.pid, signal.SIGHUP)
        wait_until(lambda: self.shown("ecdsa") != "")

    @property
    def reload(self) -> str:
        """The command that has it read its keys anew."""
        return shlex.join(["kill", "-HUP", str(self.pid)])

    @property
    def pid(self) -> int:
        """The one that listens, whose title shows its configuration."""
        children = psutil.Process().children()
        return next(child.pid for child in children if f"{self.folder}/config" in " ".join(child.cmdline()))

    def shown(self, kind: str) -> str:
        """Return the host key of a kind that a stranger is shown; empty for none."""
        argv = ["ssh-keyscan", "-t", kind, "-p", str(self.port), "127.0.0.1"]
        said = subprocess.run(argv, capture_output=True, check=False, timeout=20).stdout.decode()
        return " ".join(said.split()[1:3])
