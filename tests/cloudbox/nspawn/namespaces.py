"""Network namespaces (network_namespaces(7)): each has interfaces, addresses, ports and firewall rules of its own.

One exists as long as a process or an open file holds it: a process that is killed leaves nothing.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

_CLONE_NEWNET = 0x40000000
_LIBC = ctypes.CDLL(None, use_errno=True)


def make_namespace() -> int:
    """Make a namespace, and return the open file that holds it.

    Raises:
        OSError: This computer doesn't allow it.
    """
    found: list[int | OSError] = []

    def make() -> None:
        # It is the thread's own, and stays behind when the thread ends.
        try:
            _check(_LIBC.unshare(_CLONE_NEWNET))
            found.append(_current())
        except OSError as err:
            found.append(err)

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    if isinstance(made := found[0], OSError):
        raise made
    return made


def path_of(namespace: int) -> str:
    """Return the path at which other processes open a namespace that this process holds."""
    return f"/proc/{os.getpid()}/fd/{namespace}"


@contextmanager
def entered(namespace: int | None) -> Iterator[None]:
    """Let this thread make sockets in a namespace, where they stay; None: in the one that it is in."""
    if namespace is None:
        yield
        return
    before = _current()
    try:
        _check(_LIBC.setns(namespace, _CLONE_NEWNET))
        try:
            yield
        finally:
            _check(_LIBC.setns(before, _CLONE_NEWNET))
    finally:
        os.close(before)


def run_in(namespace: int, argv: Sequence[str], script: str) -> None:
    """Run a command in a namespace, with a script on its standard input.

    Raises:
        OSError: It failed; the message has its output.
    """
    inside = ["nsenter", f"--net={path_of(namespace)}", *argv]
    done = subprocess.run(inside, check=False, input=script, capture_output=True, text=True)
    if done.returncode:
        raise OSError(f"{' '.join(argv)}: {done.stderr}")


def _current() -> int:
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def _check(status: int) -> None:
    if status:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
