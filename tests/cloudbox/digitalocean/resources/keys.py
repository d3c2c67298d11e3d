"""Public SSH keys of the account, by id or by fingerprint; the same key can't be there twice."""

from __future__ import annotations

import base64
import binascii
import hashlib

from tests.cloudbox.digitalocean.account.call import NO_CONTENT, not_found, unprocessable
from tests.cloudbox.digitalocean.account.paging import page
from tests.cloudbox.digitalocean.account.state import SshKey
from tests.cloudbox.digitalocean.account.views import show_key
from tests.cloudbox.digitalocean.cloud import Cloud
from tests.cloudbox.rest.call import Answer, Call
from tests.cloudbox.rest.routes import Routes

routes: Routes[Cloud] = Routes("/v2")


@routes.on("GET", "/account/keys", "ssh_key:read")
def list_keys(cloud: Cloud, call: Call) -> Answer:
    """List all keys."""
    return page(call, "ssh_keys", [show_key(key) for key in cloud.account.keys.values()])


@routes.on("POST", "/account/keys", "ssh_key:create")
def create_key(cloud: Cloud, call: Call) -> Answer:
    """Enter a key."""
    name, public_key = str(call.body.get("name", "")), str(call.body.get("public_key", "")).strip()
    if not name:
        raise unprocessable("Name can't be blank")
    fingerprint = _fingerprint(public_key)
    if any(key.fingerprint == fingerprint for key in cloud.account.keys.values()):
        raise unprocessable("SSH Key is already in use on your account")
    key = SshKey(
        id=cloud.account.new_number(),
        name=name,
        public_key=public_key,
        fingerprint=fingerprint,
        # fact: do-key-accepted-late
        accepted_at=cloud.clock.now() + cloud.account.settings.key_seconds,
    )
    cloud.account.keys[key.id] = key
    return Answer(status=201, body={"ssh_key": show_key(key)})


@routes.on("GET", "/account/keys/{key}", "ssh_key:read")
def get_key(cloud: Cloud, call: Call) -> Answer:
    """Show a key."""
    return Answer(body={"ssh_key": show_key(_find(cloud, call))})


@routes.on("PUT", "/account/keys/{key}", "ssh_key:update")
def rename_key(cloud: Cloud, call: Call) -> Answer:
    """Give a key another name."""
    key = _find(cloud, call)
    key.name = str(call.body.get("name", key.name))
    return Answer(body={"ssh_key": show_key(key)})


@routes.on("DELETE", "/account/keys/{key}", "ssh_key:delete")
def delete_key(cloud: Cloud, call: Call) -> Answer:
    """Remove a key; droplets keep what they got of it."""
    del cloud.account.keys[_find(cloud, call).id]
    return NO_CONTENT


def _find(cloud: Cloud, call: Call) -> SshKey:
    wanted = call.params["key"]
    for key in cloud.account.keys.values():
        if wanted in (str(key.id), key.fingerprint):
            return key
    raise not_found()


def _fingerprint(public_key: str) -> str:
    # DigitalOcean shows the MD5 of the key, as OpenSSH did before 6.8.
    parts = public_key.split()
    try:
        blob = base64.b64decode(parts[1], validate=True)
    except (IndexError, binascii.Error) as err:
        raise unprocessable("Key invalid, key should be of the format `type key [comment]`") from err
    digest = hashlib.md5(blob, usedforsecurity=False).hexdigest()
    return ":".join(digest[at : at + 2] for at in range(0, len(digest), 2))
