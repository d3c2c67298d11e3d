"""Parses the addresses that may reach machines."""

from __future__ import annotations

from orchestrator.core.errors import BadRequestError

_FIX = "write for example 198.51.100.7/32 with --ssh-from or KEDGE_SSH_FROM"


def parse_address_range(text: str) -> str:
    """Parse an address or a range of addresses, and return it as CIDR; empty stays empty.

    Raises:
        BadRequestError: it is none, or it is everybody.
    """
    if not text.strip():
        return ""
    # Imported when it is needed: quick commands do without.
    import ipaddress  # noqa: PLC0415

    try:
        network = ipaddress.ip_network(text.strip())
    except ValueError as err:
        raise BadRequestError(f"{text!r} is no range of addresses", why=str(err), fix=_FIX) from err
    if network.prefixlen == 0:
        raise BadRequestError(f"{text!r} is everybody", why="machines are closed by default", fix=_FIX)
    return str(network)
