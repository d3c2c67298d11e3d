"""Finds the scopes that a token lacks, by calls that change nothing.

Scopes to read are tried by reading, scopes to create with an invalid request, and scopes to delete with unknown names:
the API answers 403 if the scope is missing (inferred: do-scope-before-content).
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence

from orchestrator.adapters.providers.digitalocean.api import Api
from orchestrator.adapters.rest.failures import RefusedError

_FORBIDDEN = 403
_NOTHING = "00000000-0000-4000-8000-000000000000"


def find_missing_scopes(api: Api, scopes: Sequence[str] = ()) -> list[str]:
    """List the missing scopes, of those given or of all that a launch needs.

    Raises:
        ApiError: the API refuses for another reason, or doesn't answer.
    """
    calls = _harmless_calls(api)
    return [scope for scope in scopes or calls if not _is_allowed(calls[scope])]


def _is_allowed(call: Callable[[], object]) -> bool:
    try:
        call()
    except RefusedError as err:
        if err.status == _FORBIDDEN:
            return False
        if err.status not in (400, 404, 409, 412, 422):
            raise
    return True


def _harmless_calls(api: Api) -> Mapping[str, Callable[[], object]]:
    """Return a call for each scope; the names to delete are random and don't exist."""
    sdk, name = api.client, f"kedge-doctor-{secrets.token_hex(8)}"

    def read(operation: Callable[..., object], **arguments: object) -> Callable[[], object]:
        return lambda: api.read("the token's scopes can't be tried", operation, **arguments)

    def make(operation: Callable[..., object]) -> Callable[[], object]:
        return lambda: api.create("the token's scopes can't be tried", operation, body={})

    return {
        "actions:read": read(sdk.actions.list),
        "regions:read": read(sdk.regions.list),
        "sizes:read": read(sdk.sizes.list),
        "image:read": read(sdk.images.list),
        "droplet:read": read(sdk.droplets.list),
        "droplet:create": make(sdk.droplets.create),
        "droplet:delete": read(sdk.droplets.destroy_by_tag, tag_name=name),
        "ssh_key:read": read(sdk.ssh_keys.list),
        "ssh_key:create": make(sdk.ssh_keys.create),
        "ssh_key:delete": read(sdk.ssh_keys.delete, ssh_key_identifier=":".join(["00"] * 16)),
        "tag:read": read(sdk.tags.list),
        "tag:create": make(sdk.tags.create),
        "tag:delete": read(sdk.tags.delete, tag_id=name),
        "firewall:read": read(sdk.firewalls.list),
        "firewall:create": make(sdk.firewalls.create),
        "firewall:delete": read(sdk.firewalls.delete, firewall_id=_NOTHING),
    }
