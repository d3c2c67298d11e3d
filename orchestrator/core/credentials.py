"""Which variables of a shell hold what kedge itself rents machines with."""

from __future__ import annotations

from collections.abc import Iterable

_OWN = ("AWS_", "AMD_", "DIGITALOCEAN_", "SPACES_")


def is_own_credential(name: str) -> bool:
    """Tell whether a variable may open the user's cloud accounts: by its name, whatever its value is.

    A job that takes one can rent and delete in the user's name.
    """
    return name.startswith(_OWN) or (name.startswith("KEDGE_") and name.endswith("_TOKEN"))


def own_credentials(names: Iterable[str]) -> tuple[str, ...]:
    """Return those of the names that are kedge's own credentials."""
    return tuple(name for name in names if is_own_credential(name))
