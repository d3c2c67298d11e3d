"""Creates tags, and puts them on what exists."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.adapters.rest.failures import RefusedError
from orchestrator.core.errors import KedgeError

if TYPE_CHECKING:
    from orchestrator.adapters.providers.digitalocean.api import Api, Json


def ensure_tag(api: Api, tag: str, what: str) -> None:
    """Create a tag, unless it is there: nobody says how the API answers then (inferred: do-tag-again).

    Raises:
        ApiError: the API doesn't allow it; `what` is its first line.
    """
    try:
        api.create(what, api.client.tags.create, {"name": tag})
    except RefusedError:
        if api.read(what, api.client.tags.get, tag) is None:
            raise


def put_tag(api: Api, tag: str, what: str, resource: Json) -> None:
    """Put a tag on a droplet or a volume.

    Raises:
        KedgeError: the API doesn't allow it, or doesn't know the tag or the resource.
    """
    ensure_tag(api, tag, what)
    if api.read(what, api.client.tags.assign_resources, tag, {"resources": [resource]}) is None:
        raise KedgeError(what, why=f"the API doesn't know the tag {tag} yet, or what is to have it", fix="try again")


def take_tag(api: Api, tag: str, what: str, resource: Json) -> None:
    """Take a tag from a droplet or a volume; a missing one is no error.

    Raises:
        ApiError: the API doesn't allow it.
    """
    api.read(what, api.client.tags.unassign_resources, tag, {"resources": [resource]})
