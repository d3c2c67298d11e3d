"""This computer's address, as the machines that it rents see it."""

from __future__ import annotations

import urllib.error
import urllib.request
from ipaddress import ip_network

from orchestrator.core.errors import BadRequestError, UnreachableError

_ASK = "https://checkip.amazonaws.com"
_ASK_SECONDS = 5


def ask_own_address() -> str:
    """Ask a public service from which address it sees us.

    Raises:
        UnreachableError: it doesn't answer.
    """
    try:
        with urllib.request.urlopen(_ASK, timeout=_ASK_SECONDS) as answer:
            return str(answer.read(64).decode("ascii", "replace")).strip()
    except (urllib.error.URLError, OSError) as err:
        raise UnreachableError(
            "the address from which machines are reached can't be found out",
            why=f"{_ASK}: {err}",
            fix="say it with --ssh-from 203.0.113.7/32",
        ) from err


def parse_network(text: str) -> str:
    """Return an address or a network as a network.

    Raises:
        BadRequestError: it is neither, or it is everybody.
    """
    try:
        network = ip_network(text.strip(), strict=False)
    except ValueError as err:
        raise BadRequestError(f"{text!r} is no address", why=str(err), fix="say --ssh-from 203.0.113.7/32") from err
    if network.prefixlen == 0:
        raise BadRequestError(
            f"{text!r} is everybody", why="machines are closed by default", fix="say your own address with --ssh-from"
        )
    return str(network)
