"""The laptop's SSH key in the account: added once, and kept for all runs.

A new key is listed at once, but creations accept it only seconds later: other tools have seen 9 s, and wait 24 to 50 s.
"""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING

from orchestrator.adapters.rest.failures import RefusedError

if TYPE_CHECKING:
    from orchestrator.adapters.providers.digitalocean.api import Api

_NAME = "kedge-"


def ensure_key(api: Api, public_key: str) -> str:
    """Add the laptop's key to the account, unless it is there; return its fingerprint.

    A droplet that is created without a key gets a password by mail.

    Raises:
        ApiError: the API doesn't allow it.
    """
    fingerprint = key_fingerprint(public_key)
    if _is_listed(api, fingerprint):
        return fingerprint
    body = {"name": _NAME + fingerprint.replace(":", "")[:12], "public_key": public_key}
    try:
        api.create("the SSH key can't be given to the account", api.client.ssh_keys.create, body)
    except RefusedError:
        if not _is_listed(api, fingerprint):
            raise
    return fingerprint


def key_fingerprint(public_key: str) -> str:
    """Return a public key's MD5 fingerprint, which the API uses as an id (RFC 4716, section 4)."""
    blob = base64.b64decode(public_key.split()[1] + "==")
    digest = hashlib.md5(blob, usedforsecurity=False).hexdigest()
    return ":".join(digest[at : at + 2] for at in range(0, len(digest), 2))


def _is_listed(api: Api, fingerprint: str) -> bool:
    listed = api.pages("the account's SSH keys can't be listed", api.client.ssh_keys.list, "ssh_keys")
    return any(fields["fingerprint"] == fingerprint for fields in listed)
