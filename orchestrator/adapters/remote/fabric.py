"""A fabric connection, opened once in a command; its raw channels carry the commands.

fabric's own `run(in_stream=...)` needs minutes for what a channel carries in a second, and prints.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import errno
import logging
import shlex
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta

import fabric
import paramiko

from orchestrator.adapters.remote.failures import (
    HostKeyError,
    broken,
    key_refused,
    too_slow,
    unanswered,
    wrong_host_key,
)
from orchestrator.adapters.remote.openssh import refuse_failure
from orchestrator.adapters.remote.options import CONNECT_SECONDS, KEEPALIVE_MISSES, KEEPALIVE_SECONDS
from orchestrator.adapters.remote.places import host_token
from orchestrator.adapters.remote.proxy import Proxy, expand
from orchestrator.adapters.remote.session import DEFAULT_TIMEOUT, Alarm, Session, converse, read_lines
from orchestrator.core.decoding import ANSWER_BYTES
from orchestrator.core.errors import BadRequestError, UnreachableError
from orchestrator.core.machine import SshAddress
from orchestrator.core.ports import Completed

# paramiko logs tracebacks of failures that reach the user as errors of ours.
logging.getLogger("paramiko").setLevel(logging.CRITICAL)

_NO_STATUS = -1
_READ_BYTES = 1 << 17


class FabricRemote:
    """Implements `core.ports.Remote` over one paramiko transport."""

    def __init__(self, address: SshAddress, proxy: str = "") -> None:
        """Connect, through a proxy command where there is one.

        Raises:
            UnreachableError: nobody answers, or somebody who isn't the machine, or who doesn't know our key.
        """
        self._address = address
        self._proxy = Proxy(expand(proxy, address)) if proxy else None
        self._connection = _connection(address, self._proxy.socket if self._proxy else None)
        try:
            self._transport = _open(self._connection, address)
        except HostKeyError:
            self._close_proxy()
            raise
        except UnreachableError as err:
            if said := self._close_proxy():
                raise unanswered(address, f"the way to it failed: {said}") from err
            raise

    @property
    def usable(self) -> bool:
        """Whether the connection is open."""
        return self._transport.is_active()

    def run(
        self, argv: Sequence[str], *, stdin: bytes = b"", timeout: timedelta | None = None, most: int = ANSWER_BYTES
    ) -> Completed:
        """Run a command to its end, within ten minutes where no timeout is given."""
        return self._converse(argv, (stdin,) if stdin else (), timeout, most)

    def send(self, argv: Sequence[str], chunks: Iterable[bytes], *, timeout: timedelta | None = None) -> Completed:
        """Run a command and stream chunks into it, within ten minutes where no timeout is given."""
        return self._converse(argv, chunks, timeout, ANSWER_BYTES)

    def lines(self, argv: Sequence[str]) -> Iterator[bytes]:
        """Run a command and yield its lines; a connection that is dead is given up by keepalive.

        Raises:
            KedgeError: the command failed.
        """

        def end(completed: Completed) -> None:
            refuse_failure(argv, self._checked(completed))

        return read_lines(self._session(argv), end)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
        self._close_proxy()

    def _close_proxy(self) -> str:
        proxy, self._proxy = self._proxy, None
        return proxy.close() if proxy else ""

    def _converse(
        self, argv: Sequence[str], chunks: Iterable[bytes], timeout: timedelta | None, most: int
    ) -> Completed:
        limit = timeout or DEFAULT_TIMEOUT
        outcome = converse(self._session(argv), chunks, limit, most=most)
        if outcome.timed_out:
            raise too_slow(self._address, argv, limit)
        return self._checked(outcome.completed)

    def _session(self, argv: Sequence[str]) -> Session:
        try:
            # paramiko waits for the answer to `exec` without a limit.
            with Alarm(timedelta(seconds=CONNECT_SECONDS), self._transport.close):
                channel = self._transport.open_session(timeout=CONNECT_SECONDS)
                channel.exec_command(shlex.join(argv))
        except Exception as err:
            raise broken(self._address, str(err) or type(err).__name__) from err
        return _Channel(channel)

    def _checked(self, completed: Completed) -> Completed:
        if completed.exit_code != _NO_STATUS:
            return completed
        if not self._transport.is_active():
            raise broken(self._address, "it ended before the command did")
        # A signal ended the command: the OpenSSH client says 255 then.
        return Completed(exit_code=255, stdout=completed.stdout, stderr=completed.stderr)


class _Channel:
    """A session carried by a channel of the transport."""

    def __init__(self, channel: paramiko.Channel) -> None:
        self._channel = channel

    def write(self, chunk: bytes) -> None:
        with _broken_pipe():
            self._channel.sendall(chunk)

    def end_input(self) -> None:
        with _broken_pipe():
            self._channel.shutdown_write()

    def read_stdout(self) -> bytes:
        return _read(self._channel.recv)

    def read_stderr(self) -> bytes:
        return _read(self._channel.recv_stderr)

    def wait(self) -> int:
        return self._channel.recv_exit_status()

    def abort(self) -> None:
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
            self._channel.close()

    def close(self) -> None:
        self.abort()


def _read(receive: Callable[[int], bytes]) -> bytes:
    # paramiko confirms what it received, and fails where the connection was cut meanwhile; `wait` has no status then.
    try:
        return receive(_READ_BYTES)
    except (EOFError, OSError, paramiko.SSHException):
        return b""


@contextlib.contextmanager
def _broken_pipe() -> Iterator[None]:
    # What paramiko raises depends on the instant at which the connection went.
    try:
        yield
    except (EOFError, paramiko.SSHException) as err:
        raise BrokenPipeError(errno.EPIPE, "the connection is closed") from err


def _connection(address: SshAddress, sock: socket.socket | None) -> fabric.Connection:
    # An empty ssh_config and lazy loading: neither the user's SSH configuration nor a fabric.yml is read.
    config = fabric.Config(lazy=True, ssh_config=paramiko.SSHConfig())
    connection = fabric.Connection(
        address.host,
        user=address.user,
        port=address.port,
        config=config,
        connect_timeout=CONNECT_SECONDS,
        connect_kwargs={
            "key_filename": address.key_file,
            "allow_agent": False,
            "look_for_keys": False,
            "banner_timeout": CONNECT_SECONDS,
            "auth_timeout": CONNECT_SECONDS,
            **({"sock": sock} if sock else {}),
        },
    )
    # fabric would accept any key of a host that it doesn't know.
    connection.client.set_missing_host_key_policy(paramiko.RejectPolicy())
    kind, key = _parse_host_key(address)
    connection.client.get_host_keys().add(host_token(address), kind, key)
    return connection


def _parse_host_key(address: SshAddress) -> tuple[str, paramiko.PKey]:
    try:
        kind, encoded = address.host_key.split()[:2]
        return kind, paramiko.PKey.from_type_string(kind, base64.b64decode(encoded, validate=True))
    except (ValueError, binascii.Error, paramiko.SSHException) as err:
        raise BadRequestError(f"the pinned host key of {address.host} can't be read", why=str(err)) from err


def _open(connection: fabric.Connection, address: SshAddress) -> paramiko.Transport:
    try:
        _negotiate(connection, address)
    except UnreachableError:
        # fabric closes what has been opened; before, paramiko's thread reads whatever a hostile server sends, for ever.
        connection.client.close()
        raise
    transport: paramiko.Transport = connection.transport
    transport.set_keepalive(KEEPALIVE_SECONDS)
    _give_up_on_silence(transport)
    return transport


def _negotiate(connection: fabric.Connection, address: SshAddress) -> None:
    try:
        connection.open()
    except (paramiko.BadHostKeyException, paramiko.ssh_exception.IncompatiblePeer) as err:
        raise wrong_host_key(address) from err
    except paramiko.AuthenticationException as err:
        raise key_refused(address) from err
    except Exception as err:
        # It hands on whatever its reader of a hostile server's bytes has raised.
        raise unanswered(address, str(err) or type(err).__name__) from err


def _give_up_on_silence(transport: paramiko.Transport) -> None:
    # paramiko sends keepalives without looking for an answer: the kernel does, where it can. A proxy's own SSH gives up
    # by itself.
    carrier = transport.sock
    if not isinstance(carrier, socket.socket) or carrier.family == socket.AF_UNIX:
        return
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        patience = KEEPALIVE_SECONDS * KEEPALIVE_MISSES * 1000
        carrier.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, patience)
