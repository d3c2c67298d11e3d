"""Connects to machines without a public address, through a jump host or the user's proxy command.

In both cases, the machine's pinned host key is verified end to end. The jump host is verified by the user's own SSH,
with a key that is already in their known hosts.
"""

from __future__ import annotations

import shlex
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import IO

from orchestrator.core.machine import SshAddress

_JUMP_OPTIONS = {
    "BatchMode": "yes",
    "StrictHostKeyChecking": "yes",
    "UpdateHostKeys": "no",
    "ForwardAgent": "no",
    "ForwardX11": "no",
    "ConnectTimeout": "10",
    "ServerAliveInterval": "15",
    "ServerAliveCountMax": "3",
}
_END_SECONDS = 5


def proxy_command(address: SshAddress, user_config: Path | None) -> str:
    """Return the command for OpenSSH's ProxyCommand; empty for a machine that is reached directly.

    Args:
        address: the machine's.
        user_config: the user's SSH configuration, if it isn't at its usual path.
    """
    if address.proxy_command or not address.jump_host:
        return address.proxy_command
    host, _, port = address.jump_host.partition(":")
    words = ["ssh", *(("-F", str(user_config)) if user_config else ())]
    words += [word for key, value in _JUMP_OPTIONS.items() for word in ("-o", f"{key}={value}")]
    words += [*(("-p", port) if port else ()), "-W", "[%h]:%p", "--", host]
    return shlex.join(words)


def expand(command: str, address: SshAddress) -> str:
    """Expand %h, %p, %r and %%, as OpenSSH does."""
    values = {"%h": address.host, "%n": address.host, "%p": str(address.port), "%r": address.user, "%%": "%"}
    text, rest = "", command
    while rest:
        token = rest[:2]
        text += values.get(token, rest[0])
        rest = rest[2:] if token in values else rest[1:]
    return text


class Proxy:
    """A running proxy command; `socket` is the connection."""

    def __init__(self, command: str) -> None:
        """Start it in a shell, as OpenSSH does."""
        self.socket, theirs = socket.socketpair()
        self._said: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - open for as long as the command runs
        with theirs:
            self._process = subprocess.Popen(
                ["sh", "-c", f"exec {command}"],
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=self._said,
                start_new_session=True,
            )

    def close(self) -> str:
        """End it, and return the last line of its standard error."""
        self.socket.close()
        self._process.terminate()
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        with self._said as said:
            said.seek(0)
            lines = said.read().decode(errors="replace").strip().splitlines()
        return lines[-1].strip() if lines else ""
