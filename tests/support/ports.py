"""Ports that stay free until a test uses them."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket

# Below those that the system gives to connections, so that no other program's connection takes one meanwhile; above
# those that runs on this computer take for several machines (engine/steps/gang_config.py), and torchrun's own.
_PORTS = range(30_000, 32_700)
_PER_WORKER = 200

_worker = int("".join(filter(str.isdigit, os.environ.get("PYTEST_XDIST_WORKER", ""))) or 0)
_next = itertools.cycle(_PORTS[_worker * _PER_WORKER % len(_PORTS) :][:_PER_WORKER])


def free_port() -> int:
    """Return a port that nobody uses at any address; other workers of this test run get other ones."""
    for port in itertools.islice(_next, _PER_WORKER):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("", port))
            return port
    raise AssertionError(f"all ports of worker {_worker} are in use")
