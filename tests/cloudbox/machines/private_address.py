"""Gives this computer the private addresses of a box's machines, which share its network: as aliases of `lo`.

A real machine has its private address on an interface, and kedge looks for it there.
"""

from __future__ import annotations

import atexit
import fcntl
import socket
import struct
import tempfile
from ipaddress import IPv4Address
from pathlib import Path
from typing import IO

_SET_ADDRESS, _SET_MASK, _SET_FLAGS = 0x8916, 0x891C, 0x8914
"""Requests of netdevice(7)."""


def give_address(address: str) -> None:
    """Add an address until the last process with a machine there ends; a loopback address is there already."""
    if not address or IPv4Address(address).is_loopback:
        return
    # Boxes of other processes may have machines with the same address.
    users = (Path(tempfile.gettempdir()) / f"kedge-box-{address}").open("w")
    fcntl.flock(users, fcntl.LOCK_SH)
    alias = f"lo:{int(IPv4Address(address)):x}".encode()
    _ask(alias, _SET_ADDRESS, _socket_address(address))
    _ask(alias, _SET_MASK, _socket_address("255.255.255.255"))
    atexit.register(_take_back, alias, users)


def _take_back(alias: bytes, users: IO[str]) -> None:
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return
    Path(users.name).unlink(missing_ok=True)
    # An alias that is brought down is gone.
    _ask(alias, _SET_FLAGS, struct.pack("H", 0))


def _socket_address(address: str) -> bytes:
    return struct.pack("HH4s", socket.AF_INET, 0, socket.inet_aton(address))


def _ask(alias: bytes, request: int, content: bytes) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, request, struct.pack("16s24s", alias, content))
