"""The paths of machines' pinned host keys and control sockets on the laptop."""

from __future__ import annotations

import hashlib
import os
import socket
from dataclasses import dataclass
from pathlib import Path

from orchestrator.adapters.host.files import write_atomically
from orchestrator.adapters.host.private import make_private_folder, short_folder
from orchestrator.core.errors import BadRequestError
from orchestrator.core.machine import SshAddress

# A socket's path may have 103 bytes on macOS, and the OpenSSH client appends 17 while it creates one.
_LONGEST_SOCKET = 86


_NAME = 17
"""The length in bytes of a control socket's name, with the slash before it."""


def sockets_folder(runtime_dir: Path) -> Path:
    """Return a folder for control sockets; its path is short, even if the runtime folder's is long."""
    return short_folder(runtime_dir / "ssh", _LONGEST_SOCKET - _NAME)


@dataclass(frozen=True, slots=True, kw_only=True)
class SshFiles:
    """The paths of each machine's files.

    Attributes:
        pins: the folder of one known-hosts file per machine; it survives reboots of the laptop.
        runtime: a short, private folder for control sockets.
        user_config: the user's SSH configuration, for jump hosts; None for its usual path.
    """

    pins: Path
    runtime: Path
    user_config: Path | None = None

    def known_hosts(self, address: SshAddress) -> Path:
        """Return the path of the file with the only host key that is accepted at this address."""
        return self.pins / _digest(address)

    def control_socket(self, address: SshAddress) -> Path:
        """Return the path of the control socket, a different one for each key, port and user of a host."""
        return self.runtime / _digest(address)

    def pin(self, address: SshAddress) -> None:
        """Write the known-hosts file unless it exists."""
        path = self.known_hosts(address)
        line = f"{host_token(address)} {address.host_key.strip()}\n".encode()
        if not path.exists() or path.read_bytes() != line:
            write_atomically(path, line)

    def open_runtime(self) -> None:
        """Create the sockets' folder.

        Raises:
            BadRequestError: it isn't private to this user, or its path is too long for a socket.
        """
        make_private_folder(self.runtime)
        if len(os.fsencode(self.runtime / ("x" * 16))) > _LONGEST_SOCKET:
            raise BadRequestError(
                f"{self.runtime} is too long a path",
                why="the path of a socket may have about 100 bytes",
                fix="point KEDGE_RUNTIME_DIR to a shorter one",
            )


def host_token(address: SshAddress) -> str:
    """Format a host as in known-hosts files."""
    return address.host if address.port == 22 else f"[{address.host}]:{address.port}"


def answers(path: Path) -> bool:
    """Tell whether a process listens on a control socket; a dead socket is removed."""
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
