"""What this computer needs to run machines, and how to install it.

Run as a module, by `make tools`, it installs what is missing. If it can't, it says why and exits with 0: the tests with
machines are skipped then.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.cloudbox.nspawn import rootfs

_PROGRAMS = ("systemd-nspawn", "cloud-init", "sshd", "dbus-daemon", "unshare", "debootstrap", "sudo", "tmux", "curl")
_INSTALL = ("bash", "infra/setup/system.sh", "tests")
_ROOT = Path(__file__).parents[3]


def prepare_machines() -> str | None:
    """Install what is missing if possible, and unpack each Debian before the tests, so that no test waits for it.

    Returns:
        None if machines can run here, otherwise the reason and what to do about it.
    """
    if sys.platform != "linux":
        return f"machines need Linux and its systemd-nspawn: this is {sys.platform}; run the tests in a virtual machine"
    if os.geteuid() != 0:
        return "machines need root: run the tests with sudo"
    if _missing():
        # One installation at a time: several test workers may get here at once.
        with (Path(tempfile.gettempdir()) / "kedge-cloudbox-system.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            subprocess.run(_INSTALL, cwd=_ROOT, check=False, stdout=sys.stderr)
    if missing := _missing():
        return f"machines need {', '.join(missing)}: run `{' '.join(_INSTALL)}` and see what it says"
    for debian in (rootfs.BARE, rootfs.DESK):
        argv = rootfs.builder_argv(debian)
        if not debian.folder.exists() and subprocess.run(argv, cwd=_ROOT, check=False).returncode:
            return f"a Debian can't be unpacked: run `{' '.join(argv)}` and see what it says"
    return _missing_port()


def _missing() -> list[str]:
    # sshd and debootstrap are not on the PATH of every shell.
    path = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
    return [program for program in _PROGRAMS if shutil.which(program, path=path) is None]


def _missing_port() -> str | None:
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.9.254", 22))
        except OSError as err:
            if err.errno == errno.EADDRINUSE:
                return (
                    "this computer's sshd listens on port 22 of every address: stop it (systemctl stop ssh.socket ssh)"
                )
            raise
    return None


if __name__ == "__main__":
    if reason := prepare_machines():
        sys.stderr.write(f"{reason}\n")
