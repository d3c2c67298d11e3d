"""A site with DigitalOcean's API: its name, its address, and its settings in the user's environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.adapters.store.settings import StoreVariables

SPACES = StoreVariables(
    kind="Spaces",
    bucket="KEDGE_SPACES_BUCKET",
    region="KEDGE_SPACES_REGION",
    endpoint="KEDGE_SPACES_ENDPOINT",
    access_key="SPACES_ACCESS_KEY_ID",
    secret_key="SPACES_SECRET_ACCESS_KEY",  # noqa: S106 - a variable's name
    keys_file="spaces.json",
    endpoint_of_region="https://{region}.digitaloceanspaces.com",
)
"""The settings of a bucket in DigitalOcean's Spaces, which speaks S3's protocol.

Spaces has no roles: the machine receives the laptop's keys, which reach all buckets unless they are limited to this
one; nothing narrower exists (fact: do-spaces-key-grants). So the objects that decide what runs are pinned
(agent/s3/pins.py), and the plan names the remaining risk.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """One cloud with DigitalOcean's API.

    Attributes:
        name: kedge's name of the provider.
        endpoint: https only, since the SDK refuses to send tokens otherwise.
        token: empty if the user has set none.
        token_names: the variables with the token.
        ca_file: certificates to trust besides the system's; empty for none.
    """

    name: str
    endpoint: str
    token: str = field(repr=False)
    token_names: tuple[str, ...]
    ca_file: str = ""


def read_site(
    environ: Mapping[str, str], *, name: str, endpoint: str, endpoint_name: str, token_names: Sequence[str]
) -> Site:
    """Read a site's settings; the arguments come from its entry in the registry.

    Args:
        environ: the user's environment.
        name: the provider's name.
        endpoint: the API's address.
        endpoint_name: the variable that overrides the address.
        token_names: the variables with the token; the first one that is set counts. Surrounding white space is
            stripped: it comes from the file that the token was read from.
    """
    return Site(
        name=name,
        endpoint=environ.get(endpoint_name) or endpoint,
        token=next((token for each in token_names if (token := environ.get(each, "").strip())), ""),
        token_names=tuple(token_names),
        ca_file=environ.get("KEDGE_DIGITALOCEAN_CA", ""),
    )
