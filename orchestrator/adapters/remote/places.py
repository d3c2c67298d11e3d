"""Where the pins and the control sockets of machines lie on the laptop."""

from __future__ import annotations

import hashlib
import os
import socket
from dataclasses import dataclass
from pathlib import Path

from orchestrator.adapters.files import write_atomically
from orchestrator.adapters.private import make_private_folder, short_folder
from orchestrator.core.errors import BadRequestError
from orchestrator.core.machine import SshAddress

# A socket's path may have 103 bytes on macOS, and the OpenSSH client adds 17 while it creates one.
_LONGEST_SOCKET = 86


_NAME = 17
"""Bytes of a control socket's name, with the slash before it."""


def sockets_folder(runtime_dir: Path) -> Path:
    """Name the folder for control sockets, which is short whatever the runtime folder is."""
    return short_folder(runtime_dir / "ssh", _LONGEST_SOCKET - _NAME)


@dataclass(frozen=True, slots=True, kw_only=True)
class SshPlaces:
    """Names the files of each machine.

    Attributes:
        pins: a folder for one known-hosts file a machine; it outlives the laptop's reboot.
        runtime: a short, private folder for control sockets.
        user_config: the user's own SSH configuration, for jump hosts; None where it is at its usual place.
    """

    pins: Path
    runtime: Path
    user_config: Path | None = None

    def known_hosts(self, address: SshAddress) -> Path:
        """Name the file that holds the one host key accepted at this address."""
        return self.pins / _digest(address)

    def control_socket(self, address: SshAddress) -> Path:
        """Name the socket; another key, port or user at the same host has another."""
        return self.runtime / _digest(address)

    def pin(self, address: SshAddress) -> None:
        """Write the known-hosts file unless it is there already."""
        path = self.known_hosts(address)
        line = f"{host_token(address)} {address.host_key.strip()}\n".encode()
        if not path.exists() or path.read_bytes() != line:
            write_atomically(path, line)

    def open_runtime(self) -> None:
        """Make the sockets' folder.

        Raises:
            BadRequestError: it isn't a folder of this user's alone, or its path is too long for a socket.
        """
        make_private_folder(self.runtime)
        if len(os.fsencode(self.runtime / ("x" * 16))) > _LONGEST_SOCKET:
            raise BadRequestError(
                f"{self.runtime} is too long a path",
                why="the path of a socket may have about 100 bytes",
                fix="point KEDGE_RUNTIME_DIR to a shorter one",
            )


def host_token(address: SshAddress) -> str:
    """Name a host as known-hosts files do."""
    return address.host if address.port == 22 else f"[{address.host}]:{address.port}"


def answers(path: Path) -> bool:
    """Tell whether a process listens on a control socket; one that nobody listens on is removed."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller:
        caller.settimeout(2)
        try:
            caller.connect(os.fspath(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return False
        except OSError:
            return False
        return True


def _digest(address: SshAddress) -> str:
    parts = (address.host, str(address.port), address.user, address.host_key.strip(), address.key_file)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
