"""Requests for instance types, regions, images, SSH keys and filesystems."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from tests.cloudbox.lambdacloud.account import Account, show_region
from tests.cloudbox.lambdacloud.catalogue import REGIONS
from tests.cloudbox.lambdacloud.cloud import Cloud
from tests.cloudbox.lambdacloud.errors import LambdaError, invalid, missing
from tests.cloudbox.lambdacloud.state import Filesystem, SshKey, new_id
from tests.cloudbox.rest.call import Answer, Call
from tests.cloudbox.rest.routes import Routes

routes: Routes[Cloud] = Routes("/api/v1")

_KEY = re.compile(r"(ssh-|ecdsa-|sk-)\S+ [A-Za-z0-9+/=]+( .*)?")
# fact: lambda-filesystem-limit
_MOST_FILESYSTEMS = 24
_USER = {"id": "1" * 32, "email": "operator@example.com", "status": "active"}


@routes.on("GET", "/instance-types")
def list_types(cloud: Cloud, call: Call) -> Answer:
    """Map each type's name to the type and the regions with capacity, often none. fact: lambda-types-are-a-map."""
    found = {
        kind.name: {
            "instance_type": kind.describe(),
            "regions_with_capacity_available": [show_region(each) for each in kind.regions],
        }
        for kind in cloud.account.types.values()
    }
    return Answer(body={"data": found})


@routes.on("GET", "/regions")
def list_regions(cloud: Cloud, call: Call) -> Answer:
    """List all regions."""
    return Answer(body={"data": [show_region(name) for name in REGIONS]})


@routes.on("GET", "/images")
def list_images(cloud: Cloud, call: Call) -> Answer:
    """List all images, one row for each region."""
    shown = [
        {
            "id": image.id,
            "created_time": image.created_time,
            "updated_time": image.created_time,
            "name": image.family,
            "description": image.family.replace("-", " "),
            "family": image.family,
            "version": image.version,
            "architecture": image.architecture,
            "region": show_region(image.region),
        }
        for image in cloud.account.images
    ]
    return Answer(body={"data": shown})


@routes.on("GET", "/ssh-keys")
def list_keys(cloud: Cloud, call: Call) -> Answer:
    """List all keys."""
    return Answer(body={"data": [_show_key(key) for key in cloud.account.keys.values()]})


@routes.on("POST", "/ssh-keys")
def add_key(cloud: Cloud, call: Call) -> Answer:
    """Add a key. Its name may exist already, since nothing says that it may not.

    Without a public key, a pair is made and its private key is in the answer. fact: lambda-makes-key-pairs
    """
    account, public, private = cloud.account, call.body.get("public_key"), ""
    if public is None:
        public, private = _make_pair()
        account.issued.add(private)
    if not _KEY.fullmatch(public.strip()):
        raise invalid("public_key is no SSH key")
    accepted_at = account.clock.now() + account.settings.key_seconds
    key = SshKey(id=new_id(), name=call.body["name"], public_key=public.strip(), accepted_at=accepted_at)
    account.keys[key.id] = key
    return Answer(body={"data": _show_key(key) | ({"private_key": private} if private else {})})


@routes.on("DELETE", "/ssh-keys/{id}")
def delete_key(cloud: Cloud, call: Call) -> Answer:
    """Delete a key that no instance uses, not even a terminating one. fact: lambda-in-use-while-terminating."""
    wanted = call.params["id"]
    if wanted not in cloud.account.keys:
        raise LambdaError("global/not-found")
    if cloud.account.users("key", wanted):
        raise invalid("Key is currently in use, cannot delete")
    del cloud.account.keys[wanted]
    return Answer(body={"data": {}})


@routes.on("GET", "/file-systems")
def list_filesystems(cloud: Cloud, call: Call) -> Answer:
    """List all filesystems; their creation has another path. fact: lambda-two-filesystem-paths."""
    return Answer(body={"data": [_show_filesystem(cloud.account, one) for one in cloud.account.filesystems.values()]})


@routes.on("POST", "/filesystems")
def create_filesystem(cloud: Cloud, call: Call) -> Answer:
    """Create a filesystem; names are unique."""
    account, name, region = cloud.account, call.body["name"], call.body["region"]
    if region not in REGIONS:
        raise invalid("unknown region")
    if any(one.name == name for one in account.filesystems.values()):
        raise LambdaError("global/duplicate")
    if len(account.filesystems) >= _MOST_FILESYSTEMS:
        raise LambdaError("global/quota-exceeded")
    made = Filesystem(id=new_id(), name=name, region=region, created_at=account.clock.now())
    account.filesystems[made.id] = made
    return Answer(body={"data": _show_filesystem(account, made)})


@routes.on("DELETE", "/filesystems/{id}")
def delete_filesystem(cloud: Cloud, call: Call) -> Answer:
    """Delete a filesystem that no instance uses, not even a terminating one."""
    wanted = call.params["id"]
    if wanted not in cloud.account.filesystems:
        raise missing("filesystem")
    if cloud.account.users("filesystem", wanted):
        raise LambdaError("filesystems/filesystem-in-use")
    del cloud.account.filesystems[wanted]
    return Answer(body={"data": {"deleted_ids": [wanted]}})


def _show_key(key: SshKey) -> dict[str, str]:
    return {"id": key.id, "name": key.name, "public_key": key.public_key}


def _show_filesystem(account: Account, one: Filesystem) -> dict[str, Any]:
    return {
        "id": one.id,
        "name": one.name,
        "mount_point": f"/lambda/nfs/{one.name}",
        "created": iso(one.created_at),
        "created_by": _USER,
        "is_in_use": bool(account.users("filesystem", one.id)),
        "region": show_region(one.region),
        "bytes_used": one.bytes_used,
    }


def iso(when: float) -> str:
    """Format a time as the API does."""
    return datetime.fromtimestamp(when, UTC).isoformat(timespec="seconds")


def _make_pair() -> tuple[str, str]:
    key, raw = ed25519.Ed25519PrivateKey.generate(), serialization.NoEncryption()
    openssh = serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, raw)
    return key.public_key().public_bytes(*openssh).decode(), private.decode()
