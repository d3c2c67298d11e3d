"""Whose API it is: its name in kedge, its address, and what the user's environment says about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """One cloud that speaks DigitalOcean's API.

    Attributes:
        name: the provider's, in kedge.
        endpoint: https only, since the SDK refuses to send tokens otherwise.
        token: empty where the user has given none.
        token_names: the variables that it is taken from.
        ca_file: whose certificates to trust besides the system's; empty for none.
    """

    name: str
    endpoint: str
    token: str = field(repr=False)
    token_names: tuple[str, ...]
    ca_file: str = ""


def read_site(
    environ: Mapping[str, str], *, name: str, endpoint: str, endpoint_name: str, token_names: Sequence[str]
) -> Site:
    """Read a site's settings; the arguments are those of its line in the registry.

    Args:
        environ: the user's environment.
        name: the provider's.
        endpoint: where the API is.
        endpoint_name: the variable that says another place.
        token_names: the variables that hold the token, the first one that is set counts; blanks and line ends around
            it are the file's that it was read from.
    """
    return Site(
        name=name,
        endpoint=environ.get(endpoint_name) or endpoint,
        token=next((token for each in token_names if (token := environ.get(each, "").strip())), ""),
        token_names=tuple(token_names),
        ca_file=environ.get("KEDGE_DIGITALOCEAN_CA", ""),
    )
