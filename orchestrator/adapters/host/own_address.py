"""Finds this computer's public address, from which it reaches rented machines."""

from __future__ import annotations

import urllib.error
import urllib.request

from orchestrator.core.errors import BadRequestError, UnreachableError
from orchestrator.core.values.network import parse_address_range

_ASK = "https://checkip.amazonaws.com"
_ASK_SECONDS = 5
_ONE_ADDRESS = ("/32", "/128")


def ask_own_network() -> str:
    """Ask a public service for this computer's address, and return it as CIDR.

    Raises:
        UnreachableError: it doesn't answer, or not with an address.
    """
    try:
        with urllib.request.urlopen(_ASK, timeout=_ASK_SECONDS) as answer:
            return parse_own_address(answer.read(64).decode("ascii", "replace"))
    except (urllib.error.URLError, OSError, BadRequestError) as err:
        raise UnreachableError(
            "this computer's public address can't be determined, and rented machines admit no other",
            why=f"{_ASK}: {err.reason if isinstance(err, urllib.error.URLError) else err}",
            fix="name the addresses to admit, with --ssh-from 203.0.113.7/32 or KEDGE_SSH_FROM",
        ) from err


def parse_own_address(answer: str) -> str:
    """Parse the service's answer, and return it as CIDR.

    Raises:
        BadRequestError: it is not a single address.
    """
    network = parse_address_range(answer)
    if not network.endswith(_ONE_ADDRESS):
        raise BadRequestError(f"{answer!r} is not one address")
    return network
