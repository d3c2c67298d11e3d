"""A `subprocess.Popen` that forks Python programs from a server which has imported what they need."""

from __future__ import annotations

import atexit
import json
import os
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
"""Set this variable, and no program is forked: `make nightly` does."""
_ONE_IN, _WHICH = 12, 5
"""Of so many tests, one starts its programs anew: which ones depends on their names alone, and few of them are long."""


@dataclass(frozen=True)
class Preload:
    """What a server imports, and with which variables it starts."""

    modules: tuple[str, ...]
    environ: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, *modules: str, environ: Mapping[str, str]) -> Preload:
        """Make one; only the variables that are read at the start tell it from others."""
        return cls(modules, tuple(sorted(read_at_start(environ).items())))


class PreloadedProcess(subprocess.Popen[Any]):
    """A program that runs beside the test."""

    def __init__(
        self, args: Sequence[str], *, preload: Sequence[str] = (), server: Server | None = None, **more: Any
    ) -> None:
        """Start it, forked where that is possible.

        Args:
            args: the command line.
            preload: what the server is to have imported.
            server: the one to fork it; without, one is found or started that has imported this.
            more: what `subprocess.Popen` takes.
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
    """A process that has imported modules, and forks."""

    def __init__(self, channel: socket.socket, environ: Mapping[str, str]) -> None:
        """Talk to one that has been started, with the variables that it has read.

        Raises:
            RuntimeError: it has ended, because a module can't be imported.
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
        """Tell whether the program would be the same as one that is started anew."""
        return self._works and read_at_start(request.environ) == self._read_at_start

    def fork(self, request: Request, streams: list[int]) -> int:
        """Fork a program, whose parent is this process; return its process id."""
        with self._lock:
            send(self._channel, request, streams)
            answer = json.loads(self._answers.readline())
        if error := answer.get("error"):
            os.waitpid(answer["pid"], 0)
            raise OSError(*error)
        return int(answer["pid"])

    def close(self) -> None:
        """Let it end: programs that it has forked stay."""
        self._answers.close()
        self._channel.close()


@cache
def start_server(preload: Preload) -> Server:
    """Start a server, once."""
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
    """Name what to preload: nothing in a sample of the tests, which start their programs anew."""
    test = os.environ.get("PYTEST_CURRENT_TEST", "none").split(" (")[0]
    return () if zlib.crc32(test.encode()) % _ONE_IN == _WHICH else modules


def run(
    argv: Sequence[str], *, preload: Sequence[str], timeout: float, **more: Any
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, with text in its pipes, as `subprocess.run` does."""
    pipe = subprocess.PIPE
    with PreloadedProcess(argv, preload=preload, stdout=pipe, stderr=pipe, text=True, **more) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(argv, process.returncode, out, err)
