"""Sees the arguments and the environment of every process of this computer, those in the box's machines included.

    python -m tests.sweep.watching

As root on Linux, the kernel reports each program that starts (proc connector, netlink), and this process is scheduled
before that program runs; elsewhere it polls. The first line of its standard input is JSON: the secrets to find.
At the end of that input it prints its findings, and how many processes it has seen and missed.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import psutil

from tests.sweep.secrets import Secrets

_ROOT = Path(__file__).parents[2]
_PROC = Path("/proc")
_LOOK_SECONDS = 2.0
_UNTOLD_LOOK_SECONDS = 0.02
_INTERPRETERS = ("python", "sh", "bash", "dash")
# include/uapi/linux/{netlink,connector,cn_proc}.h
_NETLINK_CONNECTOR = 11
_CN_PROC = 1
_LISTEN = 1
_EXEC = 2
_COMM = 0x200
"""A process has named itself: the programs of the preload server do, which are forked and not executed."""
_NLMSG_DONE = 3
_HEADER_BYTES = 16 + 20
_SO_RCVBUFFORCE = 33
"""From include/uapi/asm-generic/socket.h: like SO_RCVBUF, beyond net.core.rmem_max."""
_BUFFER_BYTES = 1 << 22


@dataclass
class Processes:
    """The findings: (secret, place) with one process's arguments as an example; places are `table`'s."""

    found: dict[tuple[str, str], str] = field(default_factory=dict)
    started: int = 0
    missed: int = 0
    is_told: bool = False
    """Whether the kernel reported each start."""


class Watcher:
    """Watches until `close`."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def look(self) -> None:
        """Look at all processes that there are now."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write("look\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "looked\n"

    def close(self) -> Processes:
        """Stop, and return the findings."""
        said, _ = self._process.communicate(timeout=60)
        report = json.loads(said)
        found = {(name, place): example for name, place, example in report.pop("found")}
        return Processes(found=found, **report)


@contextmanager
def watching(secrets: Secrets) -> Iterator[Watcher]:
    """Watch all processes for some secrets."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.sweep.watching"],
        cwd=_ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdin
        assert process.stdout
        process.stdin.write(json.dumps(asdict(secrets)) + "\n")
        process.stdin.flush()
        assert process.stdout.readline() == "watching\n"
        yield Watcher(process)
        process.kill()


class _Looker:
    """Looks at processes: at those that start now before all others, because they may end at once."""

    def __init__(self, secrets: Secrets, kernel: socket.socket | None) -> None:
        self.seen = Processes(is_told=kernel is not None)
        self.kernel = kernel
        self._secrets = secrets
        self._namespace = _namespace("self")
        self._clean: set[tuple[int, bytes, bytes]] = set()

    def look(self, pid: int) -> bool:
        """Check one process; return False if it is already gone."""
        try:
            argv, environ = _describe(pid)
        except (OSError, psutil.Error):
            return False
        if (pid, argv, environ) in self._clean:
            return True
        before = len(self.seen.found)
        where = "" if _namespace(str(pid)) == self._namespace else "machine "
        program = _program(argv.split(b"\0"))
        example = argv.replace(b"\0", b" ").decode(errors="replace")
        for kind, text in (("argv", argv), ("environ", environ)):
            for name in self._secrets.find(text):
                self.seen.found.setdefault((name, f"{where}{kind} {program}"), example)
        if len(self.seen.found) == before:
            self._clean.add((pid, argv, environ))
        return True

    def look_at_all(self) -> None:
        for pid in psutil.pids():
            self.look_at_started()
            if pid != os.getpid():
                self.look(pid)

    def look_at_started(self) -> None:
        """Look at the processes that the kernel has reported since the last time."""
        # The error says that there are no more reports, or that some were lost.
        with contextlib.suppress(OSError):
            while self.kernel:
                self._take(self.kernel.recv(1 << 16))

    def _take(self, message: bytes) -> None:
        what, _cpu, _at, thread, pid = struct.unpack_from("=IIQII", message, _HEADER_BYTES)
        if what in (_EXEC, _COMM) and thread == pid != os.getpid():
            self.seen.started += 1
            self.seen.missed += not self.look(pid)


def _describe(pid: int) -> tuple[bytes, bytes]:
    if _PROC.exists():
        return (_PROC / f"{pid}/cmdline").read_bytes(), (_PROC / f"{pid}/environ").read_bytes()
    process = psutil.Process(pid)
    variables = [f"{name}={value}" for name, value in process.environ().items()]
    return "\0".join(process.cmdline()).encode(), "\0".join(variables).encode()


def _program(argv: list[bytes]) -> str:
    """Return a program's name in the table: a module or a script rather than its interpreter."""
    words = [word.decode(errors="replace") for word in argv if word]
    # sshd and tmux overwrite their arguments with their current state.
    name = Path(words[0]).name.split(":")[0].split(" ")[0] if words else "?"
    if not name.startswith(_INTERPRETERS):
        return name
    for number, word in enumerate(words[1:], start=1):
        if word == "-m":
            return words[number + 1] if words[number + 1 :] else name
        if word.startswith("-") and word.endswith("c"):
            return f"{name} -c"
        if not word.startswith("-") and word != "pipefail":
            script = Path(word).name
            return " ".join([script, *words[number + 1 : number + 2]]) if script == "kedge-agent" else script
    return name


def _namespace(pid: str) -> int:
    try:
        return (_PROC / pid / "ns/pid").stat().st_ino
    except OSError:
        return 0


def _connect() -> socket.socket | None:
    """Ask the kernel to report each program that starts; None if it doesn't do that."""
    if not hasattr(socket, "AF_NETLINK"):
        return None
    try:
        kernel = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _NETLINK_CONNECTOR)
        kernel.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER_BYTES)
        kernel.bind((os.getpid(), _CN_PROC))
        body = struct.pack("=IIIIHHI", _CN_PROC, 1, 0, 0, 4, 0, _LISTEN)
        kernel.send(struct.pack("=IHHII", 16 + len(body), _NLMSG_DONE, 0, 0, os.getpid()) + body)
        # With priority, this process reads a report before the new program has run.
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
        kernel.setblocking(False)
    except OSError:
        return None
    return kernel


def _watch(looker: _Looker) -> None:
    waits: list[int] = [sys.stdin.fileno(), *([looker.kernel.fileno()] if looker.kernel else [])]
    pause = _LOOK_SECONDS if looker.kernel else _UNTOLD_LOOK_SECONDS
    next_look = time.monotonic() + pause
    while True:
        ready, _, _ = select.select(waits, [], [], pause)
        looker.look_at_started()
        if sys.stdin.fileno() in ready:
            if not sys.stdin.readline():
                return
            looker.look_at_all()
            print("looked", flush=True)
        if time.monotonic() > next_look:
            looker.look_at_all()
            next_look = time.monotonic() + pause


def main() -> None:
    """Watch until standard input ends."""
    looker = _Looker(Secrets(**json.loads(sys.stdin.readline())), _connect())
    looker.look_at_all()
    print("watching", flush=True)
    _watch(looker)
    looker.look_at_all()
    report = asdict(looker.seen)
    report["found"] = [[name, place, example] for (name, place), example in looker.seen.found.items()]
    print(json.dumps(report))


if __name__ == "__main__":
    main()
