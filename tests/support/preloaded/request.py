"""The request to the preload server: a program, and the process attributes that it needs."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

READ_AT_START = ("PYTHON", "LANG", "LC_", "TZ", "OMP_", "MKL_", "CUDA_", "LD_", "COVERAGE_", "COV_")
"""Variables that the interpreter and libraries read at the start: if they differ, a program is started normally."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """A Python program to run as `python -m MODULE ARGUMENTS` or as `python FILE ARGUMENTS`.

    `python -IS FILE ARGUMENTS` is how the agent's launchers start. The forked program isn't isolated; it must add its
    own folder to the path, and use nothing of site-packages.

    Attributes:
        argv: the whole command line.
        module: the module to run; empty for a file.
        arguments: the words after the module; for a file, the file and the words after it.
        unbuffered: `-u` was given.
        session: whether it starts its own session.
        umask: its umask.
    """

    argv: list[str]
    module: str
    arguments: list[str]
    unbuffered: bool
    cwd: str
    environ: dict[str, str]
    session: bool
    umask: int

    @classmethod
    def of(cls, argv: Sequence[object], *, cwd: object, env: Mapping[str, str] | None, session: bool) -> Request | None:
        """Parse a command line; None unless it runs a module or a file with this interpreter."""
        words = [os.fspath(word) if isinstance(word, os.PathLike) else word for word in argv]
        if not all(isinstance(word, str) for word in words):
            return None
        text = [str(word) for word in words]
        unbuffered, isolated = text[1:2] == ["-u"], text[1:2] == ["-IS"]
        rest = text[2:] if unbuffered or isolated else text[1:]
        by_module = rest[:1] == ["-m"]
        by_file = len(rest) > 0 and (isolated or rest[0].endswith(".py"))
        if text[0] != sys.executable or not (len(rest) > 1 if by_module else by_file):
            return None
        return cls(
            argv=text,
            module=rest[1] if by_module else "",
            arguments=rest[2:] if by_module else rest,
            unbuffered=unbuffered,
            cwd=str(cwd) if cwd is not None else str(Path.cwd()),
            environ=dict(os.environ if env is None else env),
            session=session,
            umask=_umask(),
        )


def send(channel: socket.socket, request: Request, streams: Sequence[int]) -> None:
    """Send a request with its standard streams."""
    payload = json.dumps(asdict(request)).encode()
    socket.send_fds(channel, [len(payload).to_bytes(8, "big")], streams)
    channel.sendall(payload)


def receive(channel: socket.socket) -> tuple[Request, list[int]] | None:
    """Wait for a request; None if the channel is closed."""
    head, streams, _, _ = socket.recv_fds(channel, 8, 3)
    if not head:
        return None
    with channel.makefile("rb", buffering=0) as file:
        payload = b""
        while missing := int.from_bytes(head, "big") - len(payload):
            payload += file.read(missing)
    return Request(**json.loads(payload)), streams


@cache
def usable() -> bool:
    """Whether this system can fork a child for another process."""
    return sys.platform == "linux" and os.uname().machine in ("x86_64", "aarch64")


def read_at_start(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that are read when a program starts."""
    return {name: value for name, value in environ.items() if name.startswith(READ_AT_START)}


def _umask() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("Umask:"):
            return int(line.split()[1], 8)
    raise AssertionError("a kernel without Umask")
