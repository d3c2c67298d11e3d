"""`core.ports.Remote` with the OpenSSH client, over a control socket that outlives kedge's commands."""

from __future__ import annotations

import errno
import os
import select
import shlex
import subprocess
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from types import MappingProxyType

from orchestrator.adapters.host.child_environment import client_environment
from orchestrator.adapters.ssh.failures import explain_openssh, too_slow
from orchestrator.adapters.ssh.options import openssh_argv, openssh_options
from orchestrator.adapters.ssh.session import Session, SessionRemote, converse, read_lines
from orchestrator.adapters.ssh.ssh_files import SshFiles, answers
from orchestrator.core.errors import KedgeError
from orchestrator.core.machine import SshAddress
from orchestrator.core.ports import Completed
from orchestrator.core.protocol.decoding import clip

_OWN_FAILURE = 255
# If the master has ended by now, the client connects by itself. It must not become a master, which would keep
# kedge's pipes open.
_OWN_WAY = ("-T", "-o", "ControlMaster=no")
_PROBE_TIMEOUT = timedelta(seconds=20)
_READ_BYTES = 1 << 17


class OpenSshRemote(SessionRemote):
    """Implements `core.ports.Remote`: each command is an OpenSSH client; all share one connection."""

    def __init__(
        self, ssh_files: SshFiles, address: SshAddress, environ: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        self._address = address
        self._environ = client_environment(environ, address)
        self._socket = ssh_files.control_socket(address)
        self._options = openssh_options(ssh_files, address)
        self._client = openssh_argv(self._options, address, _OWN_WAY)
        self._at_work: set[_ClientProcess] = set()

    @property
    def usable(self) -> bool:
        """Whether the control master still runs."""
        return answers(self._socket)

    def lines(self, argv: Sequence[str]) -> Iterator[bytes]:
        """Run a command and yield its lines; keepalive detects a dead connection.

        Raises:
            KedgeError: the command failed.
        """
        master = self._master()

        def end(completed: Completed) -> None:
            self._check(completed, master)
            refuse_failure(argv, completed)

        return read_lines(self._session(argv), end)

    def close(self) -> None:
        """Abort commands that other threads still wait for; the control master stays."""
        for session in list(self._at_work):
            session.abort()

    def _converse(self, argv: Sequence[str], chunks: Iterable[bytes], limit: timedelta, most: int) -> Completed:
        master = self._master()
        outcome = converse(self._session(argv), chunks, limit, most=most)
        if outcome.timed_out:
            raise too_slow(self._address, argv, limit)
        self._check(outcome.completed, master)
        return outcome.completed

    def _session(self, argv: Sequence[str]) -> Session:
        return _ClientProcess([*self._client, shlex.join(argv)], self._environ, self._at_work)

    def _check(self, completed: Completed, master: int | None) -> None:
        if completed.exit_code == _OWN_FAILURE and not self._held(master):
            raise explain_openssh(self._address, completed.stderr or self._complaint())

    def _complaint(self) -> bytes:
        # Some refusals are logged below the level of errors, and a client whose master broke prints nothing.
        loud = openssh_argv(self._options, self._address, (*_OWN_WAY, "-o", "LogLevel=INFO"))
        probe = converse(_ClientProcess([*loud, "true"], self._environ, self._at_work), (), _PROBE_TIMEOUT)
        return probe.completed.stderr if probe.completed.exit_code == _OWN_FAILURE else b""

    def _held(self, master: int | None) -> bool:
        # The client exits with 255 if the connection breaks, but a command can exit with 255 too. If the master still
        # runs commands, the connection isn't broken.
        if master is None or self._master() != master:
            return False
        probe = converse(self._session(["true"]), (), _PROBE_TIMEOUT)
        return probe.completed.exit_code == 0 and self._master() == master

    def _master(self) -> int | None:
        try:
            return self._socket.lstat().st_ino
        except FileNotFoundError:
            return None


def refuse_failure(argv: Sequence[str], completed: Completed) -> None:
    """Raise an error if a command, whose lines were read, has failed."""
    if completed.exit_code != 0:
        said = completed.stderr.decode(errors="replace").strip()
        raise KedgeError(
            f"`{argv[0].rpartition('/')[2]}` failed on the machine",
            why=clip(said.splitlines()[-1]) if said else f"it exited with {completed.exit_code}",
        )


class _ClientProcess:
    """A session over a child process.

    If the client is killed, the master still holds its pipes, so that neither their end nor an error comes. Therefore
    every read and write also waits for `abort`.
    """

    def __init__(self, argv: Sequence[str], environ: Mapping[str, str], at_work: set[_ClientProcess]) -> None:
        self._process = _start(argv, environ)
        self._pipes = (self._process.stdin, self._process.stdout, self._process.stderr)
        self._stdin, self._stdout, self._stderr = (pipe.fileno() for pipe in self._pipes if pipe)
        self._given_up, self._give_up = os.pipe()
        os.set_blocking(self._stdin, False)
        self._closing = threading.Lock()
        self._is_closed = False
        self._at_work = at_work
        at_work.add(self)

    def write(self, chunk: bytes) -> None:
        view = memoryview(chunk)
        while view:
            if not self._ready(self._stdin, select.POLLOUT):
                raise BrokenPipeError(errno.EPIPE, "the command was given up")
            view = view[os.write(self._stdin, view) :]

    def end_input(self) -> None:
        if self._process.stdin:
            self._process.stdin.close()

    def read_stdout(self) -> bytes:
        return self._read(self._stdout)

    def read_stderr(self) -> bytes:
        return self._read(self._stderr)

    def wait(self) -> int:
        return self._process.wait()

    def abort(self) -> None:
        with self._closing:
            if not self._is_closed:
                self._process.kill()
                os.write(self._give_up, b"!")

    def close(self) -> None:
        self._process.wait()
        self._at_work.discard(self)
        with self._closing:
            self._is_closed = True
            for pipe in self._pipes:
                if pipe:
                    pipe.close()
            os.close(self._given_up)
            os.close(self._give_up)

    def _read(self, pipe: int) -> bytes:
        return os.read(pipe, _READ_BYTES) if self._ready(pipe, select.POLLIN) else b""

    def _ready(self, pipe: int, event: int) -> bool:
        poll = select.poll()
        poll.register(pipe, event)
        poll.register(self._given_up, select.POLLIN)
        return all(ready != self._given_up for ready, _ in poll.poll())


def _start(argv: Sequence[str], environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
    try:
        # In its own process session, so that Ctrl-C reaches only kedge, which decides what happens to the command.
        return subprocess.Popen(
            argv,
            env=environ,
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except FileNotFoundError as err:
        raise KedgeError("ssh isn't installed", fix="install the openssh-client package") from err
