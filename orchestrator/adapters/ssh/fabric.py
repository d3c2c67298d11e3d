"""`core.ports.Remote` over a fabric connection: each command runs in a raw channel of its transport.

fabric's own `run(in_stream=...)` takes minutes for what a channel transfers in a second, and it prints.
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

from orchestrator.adapters.ssh.failures import HostKeyError, broken, key_refused, too_slow, unanswered, wrong_host_key
from orchestrator.adapters.ssh.openssh import refuse_failure
from orchestrator.adapters.ssh.options import CONNECT_SECONDS, KEEPALIVE_MISSES, KEEPALIVE_SECONDS
from orchestrator.adapters.ssh.proxy import Proxy, expand
from orchestrator.adapters.ssh.session import Alarm, Session, SessionRemote, converse, read_lines
from orchestrator.adapters.ssh.ssh_files import host_token
from orchestrator.core.errors import BadRequestError, UnreachableError
from orchestrator.core.machine import SshAddress
from orchestrator.core.ports import Completed

# paramiko logs tracebacks of failures that users see as kedge's errors.
logging.getLogger("paramiko").setLevel(logging.CRITICAL)

_NO_STATUS = -1
_READ_BYTES = 1 << 17


class FabricRemote(SessionRemote):
    """Implements `core.ports.Remote` over one paramiko transport."""

    def __init__(self, address: SshAddress, proxy: str = "") -> None:
        """Connect, through a proxy command if there is one.

        Raises:
            UnreachableError: the machine doesn't answer, presents another host key, or refuses kedge's key.
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
                raise unanswered(address, f"the jump host or proxy command failed: {said}") from err
            raise

    @property
    def usable(self) -> bool:
        """Whether the connection is open."""
        return self._transport.is_active()

    def lines(self, argv: Sequence[str]) -> Iterator[bytes]:
        """Run a command and yield its lines; keepalive detects a dead connection.

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

    def _converse(self, argv: Sequence[str], chunks: Iterable[bytes], limit: timedelta, most: int) -> Completed:
        outcome = converse(self._session(argv), chunks, limit, most=most)
        if outcome.timed_out:
            raise too_slow(self._address, argv, limit)
        return self._checked(outcome.completed)

    def _session(self, argv: Sequence[str]) -> Session:
        try:
            # paramiko waits for the answer to `exec` without a time limit.
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
        # A signal ended the command: the OpenSSH client returns 255 then.
        return Completed(exit_code=255, stdout=completed.stdout, stderr=completed.stderr)


class _Channel:
    """A session over a channel of the transport."""

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
    # Receiving also sends an acknowledgement, which fails on a broken connection; `wait` then finds no exit status.
    try:
        return receive(_READ_BYTES)
    except (EOFError, OSError, paramiko.SSHException):
        return b""


@contextlib.contextmanager
def _broken_pipe() -> Iterator[None]:
    # Which error paramiko raises depends on when exactly the connection broke.
    try:
        yield
    except (EOFError, paramiko.SSHException) as err:
        raise BrokenPipeError(errno.EPIPE, "the connection is closed") from err


def _connection(address: SshAddress, sock: socket.socket | None) -> fabric.Connection:
    # With an empty ssh_config and lazy loading, neither the user's SSH configuration nor a fabric.yml is read.
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
    # By default, fabric accepts any key of an unknown host.
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
        # fabric closes only an open connection; before, paramiko's thread would read a hostile server's bytes forever.
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
        # paramiko passes on whatever error a hostile server's bytes caused in its reader thread.
        raise unanswered(address, str(err) or type(err).__name__) from err


def _give_up_on_silence(transport: paramiko.Transport) -> None:
    # paramiko sends keepalives without checking for answers, so the kernel does that, if it can. A proxy's SSH client
    # detects a dead connection by itself.
    carrier = transport.sock
    if not isinstance(carrier, socket.socket) or carrier.family == socket.AF_UNIX:
        return
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        patience = KEEPALIVE_SECONDS * KEEPALIVE_MISSES * 1000
        carrier.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, patience)
