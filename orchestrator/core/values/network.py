"""Parses the ranges of addresses from which machines may be reached."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from orchestrator.core.errors import BadRequestError

_FIX = "write for example 198.51.100.7/32 with --ssh-from or KEDGE_SSH_FROM"
EVERYBODY = {4: "0.0.0.0/0", 6: "::/0"}
"""The range of all addresses, by IP version."""
_MOST_ADDRESSES = {4: 2**24, 6: 2**112}
"""A /8 and a /16: more than any one organization has."""
_NOT_PUBLIC = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7")
"""Private ranges, from which nobody connects over the internet (RFC 1918, RFC 4193)."""


def parse_address_range(text: str, *, everybody: bool = False) -> str:
    """Parse an address or a range of addresses, and return it as CIDR; empty stays empty.

    Args:
        text: as the user wrote it.
        everybody: also accept 0.0.0.0/0 and ::/0.

    Raises:
        BadRequestError: it isn't a range of addresses, or it contains (nearly) everybody.
    """
    if not text.strip():
        return ""
    # Imported when it is needed, so that quick commands don't pay for it.
    import ipaddress  # noqa: PLC0415

    try:
        network = str(ipaddress.ip_network(text.strip()))
    except ValueError as err:
        raise BadRequestError(f"{text!r} is not a range of addresses", why=str(err), fix=_FIX) from err
    if not (everybody and network in EVERYBODY.values()):
        refuse_everybody(network)
    return network


def refuse_everybody(network: str) -> None:
    """Refuse a range of all addresses, or nearly all; an empty text is accepted.

    Raises:
        BadRequestError: it is such a range.
    """
    if network and open_families((network,)):
        raise BadRequestError(
            f"{network!r} admits everybody, or nearly everybody",
            why="machines are closed by default; the widest range is a /8, with IPv6 a /16",
            fix=_FIX,
        )


def open_families(networks: Iterable[str]) -> tuple[int, ...]:
    """Return the IP versions in which these ranges together admit nearly everybody."""
    import ipaddress  # noqa: PLC0415 - as above

    private: list[Any] = [ipaddress.ip_network(each) for each in _NOT_PUBLIC]
    parsed: list[Any] = [ipaddress.ip_network(each, strict=False) for each in networks]
    sizes = dict[int, int]()
    for version in _MOST_ADDRESSES:
        inside = [each for each in private if each.version == version]
        of_version = [each for each in parsed if each.version == version]
        public = [each for each in of_version if not any(each.subnet_of(other) for other in inside)]
        sizes[version] = sum(each.num_addresses for each in ipaddress.collapse_addresses(public))
    return tuple(version for version, most in _MOST_ADDRESSES.items() if sizes[version] > most)
