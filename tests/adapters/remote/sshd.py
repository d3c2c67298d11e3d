"""A real sshd for tests, on a loopback port, and a proxy in front of it whose connections can be cut."""

from __future__ import annotations

import contextlib
import getpass
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil

from orchestrator.adapters.ssh.fabric import FabricRemote
from orchestrator.adapters.ssh.keys import ensure_key
from orchestrator.adapters.ssh.openssh import OpenSshRemote
from orchestrator.adapters.ssh.ssh_files import SshFiles
from orchestrator.core.machine import SshAddress
from orchestrator.core.ports import Remote
from tests.support.ports import free_port

_CONFIG = """\
Port {port}
ListenAddress 127.0.0.1
HostKey "{folder}/host/id_ed25519"
AuthorizedKeysFile "{folder}/authorized_keys"
PidFile none
UsePAM no
StrictModes no
# It takes 60 ms of CPU for each connection.
KexAlgorithms -sntrup761*
PasswordAuthentication yes
KbdInteractiveAuthentication yes
LogLevel DEBUG1
SetEnv "HOME={folder}"
MaxSessions 50
MaxStartups 50
"""


class Sshd:
    """An sshd with its own host key, which accepts one client key.

    Its sessions have an empty home, so that the developer's own .bashrc doesn't matter.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        _, self.host_key = ensure_key(folder / "host")
        self.key_file, public = ensure_key(folder / "client")
        (folder / "authorized_keys").write_text(public + "\n")
        self.port = free_port()
        (folder / "config").write_text(_CONFIG.format(port=self.port, folder=folder))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> SshAddress:
        return SshAddress(
            host="127.0.0.1",
            port=self.port,
            user=getpass.getuser(),
            host_key=self.host_key,
            key_file=str(self.key_file),
        )

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    @property
    def logins(self) -> int:
        return self.log.count("Accepted publickey")

    def start(self) -> None:
        argv = ["/usr/sbin/sshd", "-D", "-f", str(self.folder / "config"), "-E", str(self.folder / "log")]
        self._process = subprocess.Popen(argv, stdin=subprocess.DEVNULL)
        wait_until(self._listens)

    def cut(self) -> None:
        """End every connection at once, without closing it properly; new ones are accepted."""
        for child in psutil.Process(self._pid).children():
            with contextlib.suppress(psutil.NoSuchProcess):
                for process in [child, *child.children(recursive=True)]:
                    with contextlib.suppress(psutil.NoSuchProcess):
                        process.kill()

    def stop(self) -> None:
        if self._process is not None:
            self.cut()
            self._process.kill()
            self._process.wait()
            self._process = None

    @property
    def _pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def _listens(self) -> bool:
        """Whether it answers; before, although connections are accepted, a SIGHUP would end it."""
        with socket.socket() as caller, contextlib.suppress(ConnectionError):
            return caller.connect_ex(("127.0.0.1", self.port)) == 0 and caller.recv(4) == b"SSH-"
        return False


class CuttingProxy:
    """A TCP proxy in front of an sshd; it cuts all connections after so many bytes in both directions together."""

    def __init__(self, port: int, dies_after: int) -> None:
        self._target = port
        self._left = dies_after
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def to(self, address: SshAddress) -> SshAddress:
        return replace(address, port=self.port)

    def close(self) -> None:
        # shutdown wakes a blocked accept, which close alone doesn't.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._cut()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
                far = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                return
            self._sockets += [near, far]
            threading.Thread(target=self._copy, args=(near, far), daemon=True).start()
            threading.Thread(target=self._copy, args=(far, near), daemon=True).start()

    def _copy(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 14):
                self._left -= len(data)
                if self._left < 0:
                    break
                sink.sendall(data)
        self._cut()

    def _cut(self) -> None:
        for end in self._sockets:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


@contextlib.contextmanager
def running_sshd(folder: Path) -> Iterator[Sshd]:
    server = Sshd(folder)
    server.start()
    try:
        yield server
    finally:
        server.stop()


@contextlib.contextmanager
def short_folder() -> Iterator[Path]:
    """A folder with a path that is short enough for sockets; pytest's own folders are too long."""
    with tempfile.TemporaryDirectory(prefix="kedge-t") as name:
        yield Path(name)


def wait_until(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition didn't become true in time"
        time.sleep(0.01)


def open_remote(transport: str, address: SshAddress, ssh_files: SshFiles) -> Remote:
    """Connect by one of the two implementations of `core.ports.Remote`."""
    if transport == "fabric":
        return FabricRemote(address)
    ssh_files.open_runtime()
    ssh_files.pin(address)
    return OpenSshRemote(ssh_files, address)
