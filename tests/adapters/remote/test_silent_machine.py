"""A machine that sends nothing for too long is given up, even while its connection stays open."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import paramiko
import pytest
from paramiko.common import AUTH_SUCCESSFUL, OPEN_SUCCEEDED

from orchestrator.adapters.ssh import fabric
from orchestrator.adapters.ssh.fabric import FabricRemote
from orchestrator.adapters.ssh.keys import ensure_key
from orchestrator.adapters.ssh.session import read_lines
from orchestrator.core.errors import UnreachableError
from orchestrator.core.machine import SshAddress
from orchestrator.core.ports import Completed
from tests.support.waiting import wait_until


class Quiet:
    """A command that prints one line, then nothing, until it is aborted."""

    def __init__(self) -> None:
        self._said = [b"one\n"]
        self._given_up = threading.Event()

    def write(self, chunk: bytes) -> None:
        """Ignore input."""

    def end_input(self) -> None:
        """Ignore the end of input."""

    def read_stdout(self) -> bytes:
        return self._said.pop() if self._said else self.read_stderr()

    def read_stderr(self) -> bytes:
        self._given_up.wait()
        return b""

    def wait(self) -> int:
        return 0

    def abort(self) -> None:
        self._given_up.set()

    def close(self) -> None:
        """Do nothing."""


def test_a_stream_that_falls_silent_is_given_up() -> None:
    """Its lines arrive first. Then the machine counts as unreachable, and the caller looks for it again."""
    ends: list[Completed] = []
    lines = read_lines(Quiet(), ends.append, silence=timedelta(seconds=0.2))
    assert next(lines) == b"one"
    with pytest.raises(UnreachableError, match="said nothing"):
        next(lines)
    assert ends == []


class _NeverAnswers(paramiko.ServerInterface):
    """Accepts every login, and never starts a command."""

    def __init__(self) -> None:
        self.left = threading.Event()

    def get_allowed_auths(self, _username: str) -> str:
        return "publickey"

    def check_auth_publickey(self, _username: str, _key: paramiko.PKey) -> int:
        return AUTH_SUCCESSFUL

    def check_channel_request(self, _kind: str, _chanid: int) -> int:
        return OPEN_SUCCEEDED

    def check_channel_exec_request(self, _channel: paramiko.Channel, _command: bytes) -> bool:
        self.left.wait()
        return False


@contextmanager
def hostile_server(folder: Path) -> Iterator[SshAddress]:
    """Run an SSH server as a hostile owner of the machine could write it."""
    key = paramiko.RSAKey.generate(2048)
    behaviour = _NeverAnswers()
    own, _ = ensure_key(folder)
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            transport = paramiko.Transport(connection)
            transport.add_server_key(key)
            transport.start_server(server=behaviour)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield SshAddress(
            host="127.0.0.1",
            port=listening.getsockname()[1],
            user="kedge",
            host_key=f"ssh-rsa {key.get_base64()}",
            key_file=str(own),
        )
        behaviour.left.set()
        thread.join()


def test_a_server_that_never_starts_the_command_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It accepts the connection, the key and the channel. Paramiko alone would wait for its answer without a limit."""
    with hostile_server(tmp_path) as address:
        remote = FabricRemote(address)
        monkeypatch.setattr(fabric, "CONNECT_SECONDS", 2)
        begun = time.monotonic()
        with pytest.raises(UnreachableError):
            remote.run(["true"])
        assert time.monotonic() - begun < 20
        remote.close()


@pytest.mark.parametrize("pause", [0.0, 0.5], ids=["at once", "now and then"])
def test_a_server_with_an_endless_greeting_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pause: float
) -> None:
    """Anybody at the machine's address can send one, without a key. No thread keeps reading it."""
    monkeypatch.setattr(fabric, "CONNECT_SECONDS", 2)
    own, public = ensure_key(tmp_path)
    before = set(threading.enumerate())
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def greet() -> None:
            connection, _ = listening.accept()
            with connection, contextlib.suppress(OSError):
                while True:
                    connection.sendall(b"A" * (1 if pause else 1 << 16))
                    time.sleep(pause)

        greeter = threading.Thread(target=greet, daemon=True)
        greeter.start()
        address = SshAddress(
            host="127.0.0.1",
            port=listening.getsockname()[1],
            user="kedge",
            host_key=public.rpartition(" ")[0],
            key_file=str(own),
        )
        with pytest.raises(UnreachableError):
            FabricRemote(address)
        greeter.join(10)
        assert not greeter.is_alive()
    wait_until(lambda: set(threading.enumerate()) <= before)
