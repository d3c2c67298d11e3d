"""The laptop's SSH key in the account: entered once, and kept for all its runs.

A new key is listed at once and accepted by creations seconds later. A creation that is refused for a key is sent
again, unchanged, until the key is accepted.
"""

from __future__ import annotations

import base64
import hashlib
import logging
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar

from orchestrator.adapters.patience import ask_again
from orchestrator.adapters.providers.digitalocean.failures import RefusedError

if TYPE_CHECKING:
    from orchestrator.adapters.providers.digitalocean.api import Api
    from orchestrator.core.ports import Clock

_log = logging.getLogger(__name__)
_Made = TypeVar("_Made")

_NAME = "kedge-"
_REFUSED = "invalid key identifiers"
_ACCEPTED_IN = timedelta(seconds=60)
"""Others have seen 9 s, and wait for 24 to 50 s."""


def ensure_key(api: Api, public_key: str) -> str:
    """Enter the laptop's key into the account, unless it is there; return its fingerprint.

    A droplet that is made without a key gets a password, sent by mail.

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


def send_with_key(api: Api, clock: Clock, public_key: str, send: Callable[[], _Made]) -> _Made:
    """Send a creation, and send it again while the account's key isn't accepted yet; one that was removed is entered.

    Raises:
        RefusedError: the creation is refused for another reason, or for the key for a minute.
        ApiError: something else is wrong with it.
    """

    def attempt() -> _Made:
        try:
            return send()
        except RefusedError as err:
            if is_key_refusal(err):
                _log.info("%s: it is sent again until the SSH key is accepted", err.what)
                ensure_key(api, public_key)
            raise

    return ask_again(clock, _ACCEPTED_IN, is_key_refusal)(attempt)


def is_key_refusal(err: BaseException) -> bool:
    """Tell whether a creation was refused because the account hasn't the key, or doesn't accept it yet."""
    return isinstance(err, RefusedError) and err.status == 422 and _REFUSED in err.message.lower()


def key_fingerprint(public_key: str) -> str:
    """Return a public key's MD5 fingerprint, by which the API knows it (RFC 4716, section 4)."""
    blob = base64.b64decode(public_key.split()[1] + "==")
    digest = hashlib.md5(blob, usedforsecurity=False).hexdigest()
    return ":".join(digest[at : at + 2] for at in range(0, len(digest), 2))


def _is_listed(api: Api, fingerprint: str) -> bool:
    listed = api.pages("the account's SSH keys can't be listed", api.client.ssh_keys.list, "ssh_keys")
    return any(fields["fingerprint"] == fingerprint for fields in listed)
