"""Parses the addresses that may reach machines."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from orchestrator.core.errors import BadRequestError

_FIX = "write for example 198.51.100.7/32 with --ssh-from or KEDGE_SSH_FROM"
EVERYBODY = {4: "0.0.0.0/0", 6: "::/0"}
"""By version of IP."""
_MOST_ADDRESSES = {4: 2**24, 6: 2**112}
"""A /8 and a /16: more than any one organization has."""
_NOT_PUBLIC = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "fc00::/7")
"""Nobody comes from these over the internet (RFC 1918, RFC 4193)."""


def parse_address_range(text: str, *, everybody: bool = False) -> str:
    """Parse an address or a range of addresses, and return it as CIDR; empty stays empty.

    Args:
        text: what somebody wrote.
        everybody: take 0.0.0.0/0 and ::/0 too.

    Raises:
        BadRequestError: it is none, or it is everybody or nearly so.
    """
    if not text.strip():
        return ""
    # Imported when it is needed: quick commands do without.
    import ipaddress  # noqa: PLC0415

    try:
        network = str(ipaddress.ip_network(text.strip()))
    except ValueError as err:
        raise BadRequestError(f"{text!r} is no range of addresses", why=str(err), fix=_FIX) from err
    if not (everybody and network in EVERYBODY.values()):
        refuse_everybody(network)
    return network


def refuse_everybody(network: str) -> None:
    """Refuse a range that holds all addresses, or nearly all; nothing is no range.

    Raises:
        BadRequestError: it does.
    """
    if network and open_families((network,)):
        raise BadRequestError(
            f"{network!r} is everybody, or nearly so",
            why="machines are closed by default; the widest range is a /8, with IPv6 a /16",
            fix=_FIX,
        )


def open_families(networks: Iterable[str]) -> tuple[int, ...]:
    """Return the versions of IP of which these ranges together let nearly everybody in."""
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
