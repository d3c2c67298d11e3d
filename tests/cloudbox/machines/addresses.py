"""Public addresses of machines: loopback addresses, each held by one box only."""

from __future__ import annotations

import errno
import itertools
import os
import socket
import threading

_PORT = 8110
"""A box holds an address by binding this UDP port of it: the kernel frees the port when the box dies, in any way."""

_POOL = [f"127.0.{block}.{host}" for block in range(1, 10) for host in range(1, 255)]


class AddressPool:
    """127.0.1.1 to 127.0.9.254, shared by all boxes of this computer."""

    def __init__(self) -> None:
        # Boxes that start together begin at different addresses, and an address is reused late: known_hosts files
        # remember them.
        start = os.getpid() * 37 % len(_POOL)
        self._next = itertools.cycle(_POOL[start:] + _POOL[:start])
        self._lock = threading.Lock()
        self._held: dict[str, socket.socket] = {}

    def take(self) -> str:
        """Return a free address, and hold it."""
        with self._lock:
            for address in itertools.islice(self._next, len(_POOL)):
                if self._hold(address):
                    return address
        raise RuntimeError("all loopback addresses are taken: end a few instances")

    def keep_only(self, used: set[str]) -> None:
        """Release the addresses that are no longer used."""
        with self._lock:
            for address in self._held.keys() - used:
                self._held.pop(address).close()

    def _hold(self, address: str) -> bool:
        if address in self._held:
            return False
        holder = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            holder.bind((address, _PORT))
        except OSError as err:
            # macOS has only 127.0.0.1, but it runs no machines that could collide.
            if err.errno == errno.EADDRINUSE:
                holder.close()
                return False
        self._held[address] = holder
        return True
