"""A `subprocess.Popen` that forks Python programs from a server that has imported what they need."""

from __future__ import annotations

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.support.preloaded.request import READ_AT_START, Request, read_at_start, send, usable

ROOT = Path(__file__).parents[3]
_SERVE = "from tests.support.preloaded.server import main\nmain()"
EVERYTHING_ANEW = "KEDGE_TESTS_START_ANEW"
"""If this variable is set, no program is forked. `make nightly` sets it."""
_starting = threading.RLock()
_ONE_IN, _WHICH = 12, 5
"""One in so many tests starts its programs normally; the test's name decides. The number avoids the long tests."""


@dataclass(frozen=True)
class Preload:
    """The modules that a server imports, and the variables that it starts with."""

    modules: tuple[str, ...]
    environ: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, *modules: str, environ: Mapping[str, str]) -> Preload:
        """Make one; of the variables, only those that are read at the start count."""
        return cls(modules, tuple(sorted(read_at_start(environ).items())))


class PreloadedProcess(subprocess.Popen[Any]):
    """A program that runs in parallel with the test."""

    def __init__(
        self, args: Sequence[str], *, preload: Sequence[str] = (), server: Server | None = None, **more: Any
    ) -> None:
        """Start the program, forked if possible.

        Args:
            args: the command line.
            preload: the modules that the server must have imported.
            server: the server that forks it; without one, a server with these modules is found or started.
            more: more arguments of `subprocess.Popen`.
        """
        self._preload = preload
        self._given = server
        super().__init__(args, **more)

    def _execute_child(self, args: Any, executable: Any, preexec_fn: Any, close_fds: Any, *others: Any) -> None:
        # In the order of CPython 3.11 to 3.14.
        pass_fds, cwd, env, _, _, shell, p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite = others[:12]
        gid, gids, uid, umask, session, group = others[13:]
        request = Request.of(args, cwd=cwd, env=env, session=session)
        plain = executable is None and preexec_fn is None and close_fds and not pass_fds and not shell
        same_user = (gid, gids, uid, umask, group) == (None, None, None, -1, -1)
        server = self._server(request) if request and plain and same_user else None
        if request is None or server is None:
            super()._execute_child(args, executable, preexec_fn, close_fds, *others)  # type: ignore[misc]
            return
        streams = [fd if fd >= 0 else number for number, fd in enumerate((p2cread, c2pwrite, errwrite))]
        self.pid = server.fork(request, streams)
        self._child_created = True
        self._close_pipe_fds(p2cread, p2cwrite, c2pread, c2pwrite, errread, errwrite)  # type: ignore[attr-defined]

    def _server(self, request: Request) -> Server | None:
        if self._given is None and (not self._preload or not usable() or EVERYTHING_ANEW in os.environ):
            return None
        server = self._given or start_server(Preload.of(*self._preload, environ=request.environ))
        return server if server.can_fork(request) else None


class Server:
    """A process that has imported modules, and forks programs."""

    def __init__(self, channel: socket.socket, environ: Mapping[str, str]) -> None:
        """Connect to a started server; `environ` are the variables that it has read.

        Raises:
            RuntimeError: the server has ended, because a module can't be imported.
        """
        self._lock = threading.Lock()
        self._channel = channel
        self._read_at_start = read_at_start(environ)
        self._answers = channel.makefile("r")
        first = self._answers.readline()
        if not first:
            self.close()
            raise RuntimeError("the preload server has ended: its standard error says why")
        self._works = bool(json.loads(first))

    def can_fork(self, request: Request) -> bool:
        """Tell whether a forked program would be the same as one that is started normally."""
        return self._works and read_at_start(request.environ) == self._read_at_start

    def fork(self, request: Request, streams: list[int]) -> int:
        """Fork a program as a child of this process; return its process id."""
        with self._lock:
            send(self._channel, request, streams)
            answer = json.loads(self._answers.readline())
        if error := answer.get("error"):
            os.waitpid(answer["pid"], 0)
            raise OSError(*error)
        return int(answer["pid"])

    def close(self) -> None:
        """End the server; programs that it has forked keep running."""
        self._answers.close()
        self._channel.close()


def start_server(preload: Preload) -> Server:
    """Start a server, once for each preload; a thread that needs the same one waits for it."""
    with _starting:
        return _start_server(preload)


@cache
def _start_server(preload: Preload) -> Server:
    ours, theirs = socket.socketpair()
    environ = dict(preload.environ)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(READ_AT_START)}
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-c", _SERVE, str(theirs.fileno()), *preload.modules],
            cwd=ROOT,
            env={**kept, **environ},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
        )
    try:
        server = Server(ours, environ)
    except RuntimeError:
        process.wait(timeout=60)
        raise

    def end() -> None:
        server.close()
        process.wait(timeout=60)

    atexit.register(end)
    return server


def but_for_a_sample(modules: tuple[str, ...]) -> tuple[str, ...]:
    """Return the modules to preload; none for a sample of the tests, which start their programs normally."""
    test = os.environ.get("PYTEST_CURRENT_TEST", "none").split(" (")[0]
    return () if zlib.crc32(test.encode()) % _ONE_IN == _WHICH else modules


def _last_words(process: PreloadedProcess) -> str:
    try:
        return str(process.communicate(timeout=10)[1])
    except subprocess.TimeoutExpired as err:
        return str(err.stderr)


def run(
    argv: Sequence[str], *, preload: Sequence[str], timeout: float, **more: Any
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, with text in its pipes, as `subprocess.run` does.

    A pytest that takes too long tells where it hangs: SIGABRT makes its faulthandler write the stacks of all threads.
    """
    pipe = subprocess.PIPE
    with PreloadedProcess(argv, preload=preload, stdout=pipe, stderr=pipe, text=True, **more) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired as late:
            process.send_signal(signal.SIGABRT)
            late.add_note(_last_words(process))
            process.kill()
            raise
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(argv, process.returncode, out, err)
