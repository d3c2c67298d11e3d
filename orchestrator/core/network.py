"""Parses the addresses that may reach machines."""

from __future__ import annotations

from orchestrator.core.errors import BadRequestError

_FIX = "write for example 198.51.100.7/32 with --ssh-from or KEDGE_SSH_FROM"


def parse_address_range(text: str, *, everybody: bool = False) -> str:
    """Parse an address or a range of addresses, and return it as CIDR; empty stays empty.

    Args:
        text: what somebody wrote.
        everybody: take 0.0.0.0/0 and ::/0 too.

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
    if not everybody:
        refuse_everybody(str(network))
    return str(network)


def is_everybody(network: str) -> bool:
    """Tell whether a range, as CIDR, holds all addresses."""
    return network.endswith("/0")


def refuse_everybody(network: str) -> None:
    """Refuse a range that holds all addresses.

    Raises:
        BadRequestError: it does.
    """
    if is_everybody(network):
        raise BadRequestError(f"{network!r} is everybody", why="machines are closed by default", fix=_FIX)
