"""The preload server: imports modules, waits, and forks programs.

Each program is a child of the process that requested it, not of the server (`CLONE_PARENT`), so that this process can
wait for it and signal it like any other child.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import importlib
import io
import json
import os
import runpy
import signal
import socket
import sys
import tempfile
import threading
from pathlib import Path

from tests.support.preloaded.request import Request, receive

_CLONE = {"x86_64": 56, "aarch64": 220}
_CLONE_PARENT = 0x8000
_PR_SET_MM, _PR_SET_MM_MAP = 35, ctypes.c_ulong(14)
_UNCHANGED = 0xFFFFFFFF
_FIELDS_OF_STAT = {
    "start_code": 26,
    "end_code": 27,
    "start_stack": 28,
    "start_data": 45,
    "end_data": 46,
    "start_brk": 47,
    "arg_start": 48,
    "arg_end": 49,
    "env_start": 50,
    "env_end": 51,
}
"""The numbers of these fields in proc_pid_stat(5)."""
_kept: list[object] = []
"""The memory that the kernel shows as a program's command line and environment."""


class _MemoryMap(ctypes.Structure):
    """`struct prctl_mm_map` of linux/prctl.h: needs no rights, unlike the calls that set one of its fields."""

    _fields_ = [
        *(
            (name, ctypes.c_uint64)
            for name in ["start_code", "end_code", "start_data", "end_data", "start_brk", "brk", "start_stack"]
        ),
        *((name, ctypes.c_uint64) for name in ["arg_start", "arg_end", "env_start", "env_end", "auxv"]),
        ("auxv_size", ctypes.c_uint32),
        ("exe_fd", ctypes.c_uint32),
    ]


def serve(channel: socket.socket) -> Request | None:
    """Fork for every request; return the request in each program, and None in the server when the channel is closed."""
    while asked := receive(channel):
        request, streams = asked
        if _fork_for_parent() == 0:
            _start(channel, request, streams)
            return request
        for stream in streams:
            os.close(stream)
    return None


def _start(channel: socket.socket, request: Request, streams: list[int]) -> None:
    answer: dict[str, object] = {"pid": os.getpid()}
    with channel:
        try:
            become(request, streams, kept=channel.fileno())
        except OSError as err:
            answer |= {"error": [err.errno, err.strerror, err.filename]}
        channel.sendall(f"{json.dumps(answer)}\n".encode())
    if "error" in answer:
        os._exit(255)


def become(request: Request, streams: list[int], *, kept: int) -> None:
    """Take over a program's attributes: streams, session, folder, environment, command line.

    Args:
        request: the attributes.
        streams: its standard streams.
        kept: the only other file that stays open.
    """
    if request.session:
        os.setsid()
    os.umask(request.umask)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
    for fd in [int(path.name) for path in Path("/proc/self/fd").iterdir()]:
        if fd > 2 and fd != kept:
            with contextlib.suppress(OSError):
                os.close(fd)
    os.chdir(request.cwd)
    os.environ.clear()
    os.environ.update(request.environ)
    _show(request.argv, request.environ)
    _open_streams(unbuffered=request.unbuffered or bool(os.environ.get("PYTHONUNBUFFERED")))
    # Values that the interpreter or numpy had cached for the server.
    tempfile.tempdir = None
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    sys.path[0] = request.cwd if request.module else str(Path(request.arguments[0]).resolve().parent)
    sys.argv = ["-m", *request.arguments] if request.module else request.arguments
    sys.orig_argv = request.argv


def _fork_for_parent() -> int:
    # Not os.fork, whose child would be the server's. No other thread runs here that could hold a lock.
    python = ctypes.pythonapi
    python.PyOS_BeforeFork()
    flags = _CLONE_PARENT | signal.SIGCHLD
    pid: int = ctypes.PyDLL(None, use_errno=True).syscall(_CLONE[os.uname().machine], flags, 0, 0, 0, 0)
    (python.PyOS_AfterFork_Parent if pid else python.PyOS_AfterFork_Child)()
    if pid < 0:
        raise OSError(ctypes.get_errno(), "clone")
    return pid


def _open_streams(*, unbuffered: bool) -> None:
    """Open the three streams again, as the interpreter does when it starts."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        old = getattr(sys, f"__{name}__")
        raw = io.FileIO(number, "r" if number == 0 else "w", closefd=False)
        raw.name = f"<{name}>"
        buffer = io.BufferedReader(raw) if number == 0 else raw if unbuffered else io.BufferedWriter(raw)
        by_line = number == 2 or raw.isatty()
        stream = io.TextIOWrapper(
            buffer,
            encoding=old.encoding,
            errors=old.errors,
            line_buffering=by_line and not unbuffered,
            write_through=unbuffered,
        )
        stream.mode = old.mode  # type: ignore[misc]
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _show(argv: list[str], environ: dict[str, str]) -> bool:
    """Set the program's command line and environment in /proc; return whether the kernel supports that."""
    content = [_area(argv), _area([f"{name}={value}" for name, value in environ.items()])]
    _kept.extend(content)
    stat = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    at = {name: int(stat[number - 3]) for name, number in _FIELDS_OF_STAT.items()}
    for (start, end), area in zip((("arg_start", "arg_end"), ("env_start", "env_end")), content, strict=True):
        at[start] = ctypes.addressof(area)
        at[end] = at[start] + len(area)
    libc = ctypes.PyDLL(None)
    libc.sbrk.restype = ctypes.c_void_p
    mapping = _MemoryMap(**at, brk=libc.sbrk(0), exe_fd=_UNCHANGED)
    size = ctypes.c_ulong(ctypes.sizeof(mapping))
    nothing = ctypes.c_ulong(0)
    done: int = libc.prctl(_PR_SET_MM, _PR_SET_MM_MAP, ctypes.byref(mapping), size, nothing)
    return done == 0


def _area(words: list[str]) -> ctypes.Array[ctypes.c_char]:
    content = b"".join(os.fsencode(word) + b"\0" for word in words)
    return ctypes.create_string_buffer(content, len(content))


def main() -> None:
    """Run with the number of the channel and the names of the modules as arguments."""
    channel = socket.socket(fileno=int(sys.argv[1]))
    gc.disable()
    for module in sys.argv[2:]:
        importlib.import_module(module)
    gc.freeze()
    gc.enable()
    answer(channel)


def fork_server() -> socket.socket:
    """Fork a server from this process, which has imported all modules; return the channel to it."""
    ours, theirs = socket.socketpair()
    if os.fork() == 0:
        ours.close()
        answer(theirs)
        os._exit(0)
    theirs.close()
    return ours


def answer(channel: socket.socket) -> None:
    """Serve until the channel is closed; in each forked program, run it to its end."""
    # A lock that another thread holds would stay locked in a forked program.
    alone = len(list(Path("/proc/self/task").iterdir())) == 1
    works = alone and _show(sys.orig_argv, dict(os.environ))
    channel.sendall(f"{json.dumps(works)}\n".encode())
    if request := serve(channel):
        try:
            _run(request)
        except SystemExit as err:
            if err.code is None or isinstance(err.code, int):
                _leave(err.code or 0)
            raise
        _leave(0)


def _run(request: Request) -> None:
    if request.module:
        runpy._run_module_as_main(request.module)  # type: ignore[attr-defined]
    else:
        runpy.run_path(request.arguments[0], run_name="__main__")


def _leave(code: int) -> None:
    """Exit as the interpreter does, but without its clean-up of modules, which is most of a short run's time."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code & 0xFF)
