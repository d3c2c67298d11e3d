"""A machine's own sshd, on a free loopback port."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from orchestrator.adapters.providers.local.folder import MachineFolder
from orchestrator.core.errors import KedgeError

HOST = "127.0.0.1"

JOBS_UMASK = 0o022
"""The umask of jobs, as on a cloud's machine. init keeps kedge's own, which admits nobody else."""

_PLACES = ("/usr/sbin", "/usr/local/sbin", "/opt/homebrew/sbin", "/sbin")
_ANSWER_S = 10.0
_PORT_TRIES = 20
_PRIVILEGE_SEPARATION = Path("/run/sshd")


def find_program(name: str, package: str) -> str:
    """Return a program's path, searched in PATH and in folders that an ordinary user's PATH often lacks.

    Raises:
        KedgeError: it isn't installed.
    """
    found = shutil.which(name, path=os.pathsep.join([*os.get_exec_path(), *_PLACES]))
    if found is None:
        raise KedgeError(
            f"{name} is not installed",
            why="a local machine is its own sshd on a loopback port",
            fix=f"install {package} (Debian, Ubuntu: apt install {package}); macOS has it already",
        )
    return str(Path(found).resolve())  # sshd runs itself again for each connection and insists on a full path


def make_host_key(folder: MachineFolder) -> str:
    """Create the machine's host key, and return its public half.

    Raises:
        KedgeError: ssh-keygen is missing or failed.
    """
    program = find_program("ssh-keygen", "openssh-client")
    argv = [program, "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(folder.host_key)]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=_ANSWER_S, check=False)
    if done.returncode:
        why = done.stderr.decode(errors="replace").strip()
        raise KedgeError("the machine's host key can't be made", why=why)
    return " ".join(folder.host_key.with_suffix(".pub").read_text().split()[:2])


def free_ports() -> Iterator[int]:
    """Yield ports that are free at this instant; another process may take one at the next."""
    for _ in range(_PORT_TRIES):
        with socket.socket() as probe:
            probe.bind((HOST, 0))
            port = int(probe.getsockname()[1])
        yield port


def start_sshd(folder: MachineFolder, ports: Iterable[int]) -> tuple[subprocess.Popen[bytes], int]:
    """Start sshd on the first port that is still free, and wait until it listens.

    Raises:
        KedgeError: it isn't installed, refuses its configuration, or all ports are taken.
    """
    program = find_program("sshd", "openssh-server")
    if os.getuid() == 0:
        # Debian creates it when its own sshd service starts, which may never have happened.
        _PRIVILEGE_SEPARATION.mkdir(mode=0o755, exist_ok=True)
    for port in ports:
        process = spawn_sshd(program, folder, port)
        if _listens(process, folder):
            return process, port
        if "bind" not in folder.sshd_log.read_text(errors="replace").lower():
            break
    raise KedgeError(
        "the machine's sshd does not start",
        why=folder.tail(folder.sshd_log) or "it says nothing",
        fix=f"check that {program} runs: {program} -t -f {folder.sshd_config}",
    )


def spawn_sshd(program: str, folder: MachineFolder, port: int) -> subprocess.Popen[bytes]:
    """Start sshd on one port, without waiting; it ends by itself if the port is taken."""
    folder.sshd_pid.unlink(missing_ok=True)
    argv = [program, "-D", "-f", str(folder.sshd_config), "-p", str(port), "-E", str(folder.sshd_log)]
    return subprocess.Popen(argv, stdin=subprocess.DEVNULL, umask=JOBS_UMASK)


def _listens(process: subprocess.Popen[bytes], folder: MachineFolder) -> bool:
    limit = time.monotonic() + _ANSWER_S
    while process.poll() is None and time.monotonic() < limit:
        # sshd writes its pid file only once it has the port.
        if folder.sshd_pid.exists() and folder.sshd_pid.read_text().strip() == str(process.pid):
            return True
        threading.Event().wait(0.005)
    return False
