"""The boot of a local machine: sshd, the agent's installation, and its watch."""

from __future__ import annotations

import subprocess
import time

from orchestrator.adapters.host.files import open_to_write
from orchestrator.adapters.providers.local.folder import Facts, MachineFolder
from orchestrator.adapters.providers.local.services import Service
from orchestrator.adapters.providers.local.sshd import (
    JOBS_UMASK,
    find_program,
    free_ports,
    make_host_key,
    spawn_sshd,
    start_sshd,
)
from orchestrator.core.errors import KedgeError

_INSTALL_S = 30.0


def boot(folder: MachineFolder, facts: Facts) -> list[Service]:
    """Start sshd and the agent, then mark the machine as ready.

    Raises:
        KedgeError: something is missing or failed.
    """
    phases = {"init": time.time()}
    install = _start_install(folder, facts)
    host_key = make_host_key(folder)
    sshd, port = start_sshd(folder, free_ports())
    phases["sshd"] = time.time()
    _finish_install(install, folder)
    watch = _start_watch(folder)
    phases["agent"] = time.time()
    folder.write("ready", {"port": port, "host_key": host_key, "phases": phases})
    program = find_program("sshd", "openssh-server")
    return [
        Service(lambda: spawn_sshd(program, folder, port), sshd),
        Service(lambda: _start_watch(folder), watch),
    ]


def _start_install(folder: MachineFolder, facts: Facts) -> subprocess.Popen[bytes]:
    agent = str(folder.root / "agent")
    argv = ["env", f"PYTHONPATH={agent}", facts.python, "-P", "-m", "kedge_agent"]
    with open_to_write(folder.root / "install.log") as log:
        return subprocess.Popen(
            [*argv, "install", "--root", str(folder.root)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )


def _finish_install(install: subprocess.Popen[bytes], folder: MachineFolder) -> None:
    try:
        code = install.wait(_INSTALL_S)
    except subprocess.TimeoutExpired:
        code = -1
    if code:
        raise KedgeError(
            "the agent can't be installed on the machine",
            why=folder.tail(folder.root / "install.log") or f"its installation ended with {code}",
            fix="this is a fault of kedge's: please report it",
        )


def _start_watch(folder: MachineFolder) -> subprocess.Popen[bytes]:
    # init keeps kedge's import path: the agent and the user's command must start with a clean one.
    argv = ["env", "-u", "PYTHONPATH", str(folder.root / "bin" / "kedge-agent"), "watch"]
    with open_to_write(folder.root / "watch.log", append=True) as log:
        return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, umask=JOBS_UMASK)
