"""Finds the network interface through which another machine is reached."""

from __future__ import annotations

import contextlib
import ipaddress
from pathlib import Path

_ROUTES = Path("/proc/net/route")
_UP, _REJECT = 0x1, 0x200
"""Flags of a route (linux/route.h)."""


def interface_to(address: str, routes: Path = _ROUTES) -> str:
    """Return the name of the interface on the route to an IPv4 address; empty if it is unknown."""
    try:
        wanted = ipaddress.IPv4Address(address)
        lines = routes.read_text().splitlines()[1:]
    except (OSError, ValueError):
        return ""
    if wanted.is_loopback:
        # Its route is in another table.
        return "lo"
    found = [route for line in lines if (route := _match(line, wanted))]
    return max(found)[-1] if found else ""


def _match(line: str, wanted: ipaddress.IPv4Address) -> tuple[int, int, str] | None:
    """Return how exact a route is, its priority and its interface; None if it doesn't lead to the address."""
    with contextlib.suppress(ValueError, IndexError):
        name, destination, _gateway, flags, _count, _use, metric, mask, *_ = line.split()
        network, bits = _decode(destination), _decode(mask)
        if int(flags, 16) & _UP and not int(flags, 16) & _REJECT and int(wanted) & bits == network:
            return bits, -int(metric), name
    return None


def _decode(text: str) -> int:
    """Decode an address of the kernel's table: hexadecimal, in the byte order of the machine (all are little)."""
    return int.from_bytes(bytes.fromhex(text), "little")
