"""A newly created machine with a real sshd, whose host key came with its user-data."""

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
    """An sshd that has only the initial host key, and offers a second one as soon as it exists."""

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
        """Run this command instead of any that later connections send; an empty one removes it."""
        lines = [line for line in (self.folder / "config").read_text().splitlines() if "ForceCommand" not in line]
        lines += [f"ForceCommand {command}"] if command else []
        (self.folder / "config").write_text("\n".join(lines) + "\n")
        os.kill(self.pid, signal.SIGHUP)
        wait_until(lambda: self.shown("ecdsa") != "")

    @property
    def reload(self) -> str:
        """The command that makes it reload its keys."""
        return shlex.join(["kill", "-HUP", str(self.pid)])

    @property
    def pid(self) -> int:
        """The process id of the listening sshd, found by the configuration in its command line."""
        children = psutil.Process().children()
        return next(child.pid for child in children if f"{self.folder}/config" in " ".join(child.cmdline()))

    def shown(self, kind: str) -> str:
        """Return the host key of a type that sshd offers; empty for none."""
        argv = ["ssh-keyscan", "-t", kind, "-p", str(self.port), "127.0.0.1"]
        output = subprocess.run(argv, capture_output=True, check=False, timeout=20).stdout.decode()
        return " ".join(output.split()[1:3])
