"""How a droplet ends itself: only a deletion ends its bill, and only a token deletes.

The token is one of the user's, with custom scopes: SCOPES are enough, and those of the API's "destroy with associated
resources" take volumes along. No scope is of a single droplet: it can delete all of its team. The machine gets it after
its first connection, in a file of curl's options that only root reads, and whoever becomes root, as the job's user
does where its file says `sudo: true`; without it, its deadline powers it off.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.adapters.boot import STATE
from orchestrator.adapters.job_user import END_COMMAND, JOB_UNITS
from orchestrator.adapters.templates import render
from orchestrator.core.errors import BadRequestError
from orchestrator.core.machine import CLOUD_USER

SCOPES = ("droplet:read", "droplet:delete", "actions:read", "image:read", "regions:read", "sizes:read")
"""To delete droplets takes the scope to read them, which takes the other four
(https://docs.digitalocean.com/reference/api/scopes/droplet/read, last edited on 2025-08-28, read on 2026-11-22)."""

METADATA_NAME = "KEDGE_DIGITALOCEAN_METADATA"
"""The variable that says where droplets find their metadata service, if it isn't the usual place."""

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
    """What a droplet deletes itself with.

    Attributes:
        endpoint: of the API.
        token: empty where the user has given none.
        token_name: the variable that it is taken from.
        ca_file: whose certificates to trust besides the system's; empty for none.
        metadata: where the droplet learns its id.
    """

    endpoint: str
    token: str = field(repr=False)
    token_name: str
    ca_file: str = ""
    metadata: str = _METADATA

    @property
    def command(self) -> tuple[str, ...]:
        """Return what ends the machine at once, as its agent calls it; empty where it can't end its bill."""
        return END_COMMAND if self.token else ()

    @property
    def caveats(self) -> tuple[str, ...]:
        """Say in one line what the token can do, or which guard remains where a droplet can't delete itself."""
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
    """Read what the user's environment says.

    Raises:
        BadRequestError: the token holds what no token holds.
    """
    token = environ.get(token_name, "").strip()
    if token and not _TOKEN.fullmatch(token):
        raise BadRequestError(
            f"{token_name} is no token",
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
    """Render what a droplet does at its deadline before it powers off; it holds no secret.

    Args:
        ending: with or without a token: one that is given later, or never, is looked for on the machine.
        volumes: ids of the volumes that are to end with it.
        state: the folder that holds the token.
        user: the job's, whose processes are ended before each try.
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
    """Return what root must have on the machine, by file name; nothing without a token.

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
    # The certificates first: a token is of use only with them.
    return {_CA: certificates, _ACCESS: "\n".join(options) + "\n"}
