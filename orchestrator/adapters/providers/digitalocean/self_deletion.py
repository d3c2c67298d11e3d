"""How a droplet deletes itself: only a deletion ends its bill, and a deletion takes a token.

The user makes the token, with custom scopes: SCOPES are enough; those of the API's "destroy with associated resources"
also delete volumes. No scope is limited to one droplet: the token can delete every droplet of its team. The machine
receives it over its first connection, in a file of curl's options that only root reads (and so can a job with
`sudo: true`). Without a token, the deadline powers the machine off.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.adapters.cloud.boot.cloud_config import STATE
from orchestrator.adapters.cloud.boot.job_user import END_COMMAND, JOB_UNITS
from orchestrator.adapters.host.templates import render
from orchestrator.core.errors import BadRequestError
from orchestrator.core.machine import CLOUD_USER

SCOPES = ("droplet:read", "droplet:delete", "actions:read", "image:read", "regions:read", "sizes:read")
"""The scope to delete droplets requires the one to read them, which requires the other four
(https://docs.digitalocean.com/reference/api/scopes/droplet/read, last edited on 2025-08-28, read on 2026-11-22)."""

METADATA_NAME = "KEDGE_DIGITALOCEAN_METADATA"
"""The variable that overrides the address of the droplets' metadata service."""

_METADATA = "http://169.254.169.254"
_ACCESS = "api.curl"
_CA = "api-ca.pem"
_AGAIN_SECONDS = 10
_TAKEN_SECONDS = 60
# Five minutes: a new droplet has been seen to answer 404 for one.
_REFUSALS = 30
_TOKEN = re.compile(r"[A-Za-z0-9_.=-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class SelfDelete:
    """What a droplet needs to delete itself.

    Attributes:
        endpoint: of the API.
        token: empty if the user has set none.
        token_name: the variable with the token.
        ca_file: certificates to trust besides the system's; empty for none.
        metadata: the service that tells the droplet its id.
    """

    endpoint: str
    token: str = field(repr=False)
    token_name: str
    ca_file: str = ""
    metadata: str = _METADATA

    @property
    def command(self) -> tuple[str, ...]:
        """Return the agent's command that ends the machine; empty if it can't end its bill."""
        return END_COMMAND if self.token else ()

    @property
    def caveats(self) -> tuple[str, ...]:
        """Say in one line what the token can do, or which guard remains without a token."""
        if self.token:
            return (
                f"the token in {self.token_name} goes to the machine: it can delete every droplet of its team, and "
                "root can read it there, a job only through `sudo: true`; take it from a team that has nothing but "
                "training (docs/digitalocean.md)",
            )
        return (
            "at its deadline the droplet powers off and bills on until `kedge teardown` or `kedge reap` deletes it: "
            f"{self.token_name} (a token with droplet:read and droplet:delete) lets it delete itself",
        )


def read_self_delete(environ: Mapping[str, str], *, endpoint: str, token_name: str, ca_file: str = "") -> SelfDelete:
    """Read the settings from the user's environment.

    Raises:
        BadRequestError: the token has invalid characters.
    """
    token = environ.get(token_name, "").strip()
    if token and not _TOKEN.fullmatch(token):
        raise BadRequestError(
            f"{token_name} is not a token",
            why="it holds other characters than letters, digits and _.=-",
            fix=f"set it to a token with the scopes {', '.join(SCOPES)}, or unset it",
        )
    return SelfDelete(
        endpoint=endpoint,
        token=token,
        token_name=token_name,
        ca_file=ca_file,
        metadata=environ.get(METADATA_NAME) or _METADATA,
    )


def render_end_script(
    ending: SelfDelete, volumes: Sequence[str] = (), *, state: str = STATE, user: str = CLOUD_USER
) -> str:
    """Render the script that a droplet runs at its deadline before it powers off; it contains no secret.

    Args:
        ending: with or without a token: the script looks for the token on the machine.
        volumes: ids of the volumes to delete with it.
        state: the folder with the token.
        user: the job's user, whose processes are ended before each try.
    """
    return render(
        "digitalocean/end.sh.j2",
        access=f"{state}/{_ACCESS}",
        endpoint=ending.endpoint.rstrip("/"),
        metadata=ending.metadata.rstrip("/"),
        volumes=list(volumes),
        user=user,
        units=JOB_UNITS,
        again=_AGAIN_SECONDS,
        taken=_TAKEN_SECONDS,
        refusals=_REFUSALS,
    )


def secret_files(ending: SelfDelete, *, state: str = STATE) -> dict[str, str]:
    """Return the files that root needs on the machine, file name -> text; none without a token.

    Raises:
        BadRequestError: the certificates can't be read.
    """
    if not ending.token:
        return {}
    options = [f'header = "Authorization: Bearer {ending.token}"']
    if not ending.ca_file:
        return {_ACCESS: "\n".join(options) + "\n"}
    options.append(f'cacert = "{state}/{_CA}"')
    try:
        certificates = Path(ending.ca_file).read_text()
    except OSError as err:
        raise BadRequestError(
            f"{ending.ca_file} can't be read", why=str(err), fix="name a file of certificates"
        ) from err
    # The certificates first: the token is useless without them.
    return {_CA: certificates, _ACCESS: "\n".join(options) + "\n"}
