"""What a run has besides machines: SSH key, tag, firewall and project; made before its first droplet."""

from __future__ import annotations

import base64
import hashlib
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from orchestrator.adapters.providers.digitalocean.failures import RefusedError
from orchestrator.adapters.providers.digitalocean.network import make_firewall, remove_firewalls, set_firewall
from orchestrator.adapters.providers.digitalocean.projects import ensure_project, remove_projects
from orchestrator.adapters.providers.digitalocean.tags import is_of_run, run_tag
from orchestrator.adapters.providers.digitalocean.volume_ends import end_volumes

if TYPE_CHECKING:
    from orchestrator.adapters.providers.digitalocean.api import Api, Json
    from orchestrator.adapters.providers.digitalocean.record import RunRecord
    from orchestrator.adapters.providers.digitalocean.tools import Tools
    from orchestrator.core.machine import MachineOrder

_log = logging.getLogger(__name__)

_KEY_NAME = "kedge-"


def ensure_belongings(tools: Tools, order: MachineOrder, ssh_from: str) -> RunRecord:
    """Make what is missing, and open port 22 to the caller's present address; no call where all is there.

    Raises:
        ApiError: the API doesn't allow it.
    """
    record = tools.records.run(order.run_id)
    if not record.key:
        record = _keep(tools, replace(record, account=tools.account.id))
        record = _keep(tools, replace(record, key=_ensure_key(tools.api, order.authorized_key)))
    if not record.firewall:
        _ensure_tag(tools.api, order.run_id)
        record = _keep(tools, replace(record, project=ensure_project(tools.api, order.run_id)))
        firewall = make_firewall(tools.api, order.run_id, ssh_from)
        return _keep(tools, replace(record, firewall=firewall, ssh_from=ssh_from))
    if record.ssh_from != ssh_from:
        return _open(tools, record, ssh_from)
    return record


def reopen(tools: Tools, run_id: str, ssh_from: str) -> bool:
    """Open port 22 of a run's machines to another address than the record has; True when it was another.

    No call where the record has this one.

    Raises:
        ApiError: the API doesn't allow it.
    """
    record = tools.records.run(run_id)
    if not record.firewall or record.ssh_from == ssh_from:
        return False
    _open(tools, record, ssh_from)
    _log.info("port 22 of run %s is open to %s now, no longer to %s", run_id, ssh_from, record.ssh_from)
    return True


def remove_belongings(tools: Tools, run_id: str) -> Sequence[str]:
    """Remove it all, and settle the run's data volumes; what is gone already is no error.

    Returns:
        What was removed or kept, one line each.

    Raises:
        ApiError: the API doesn't allow it; the rest is tried again by the next call.
    """
    return [
        *end_volumes(tools.api, run_id, tools.clock),
        *remove_firewalls(tools.api, run_id),
        *remove_projects(tools.api, run_id),
        *_remove_key(tools, run_id),
        *_remove_tags(tools.api, run_id),
    ]


def key_fingerprint(public_key: str) -> str:
    """Return a public key's MD5 fingerprint, by which the API knows it (RFC 4716, section 4)."""
    blob = base64.b64decode(public_key.split()[1] + "==")
    digest = hashlib.md5(blob, usedforsecurity=False).hexdigest()
    return ":".join(digest[at : at + 2] for at in range(0, len(digest), 2))


def _keep(tools: Tools, record: RunRecord) -> RunRecord:
    tools.records.keep_run(record)
    return record


def _open(tools: Tools, record: RunRecord, ssh_from: str) -> RunRecord:
    firewall = set_firewall(tools.api, record.firewall, record.id, ssh_from)
    return _keep(tools, replace(record, firewall=firewall, ssh_from=ssh_from))


def _ensure_key(api: Api, public_key: str) -> str:
    """Have the account know the laptop's key: without one, a droplet is made with a password, sent by mail."""
    fingerprint = key_fingerprint(public_key)
    if _find_key(api, fingerprint):
        return fingerprint
    body = {"name": _KEY_NAME + fingerprint.replace(":", "")[:12], "public_key": public_key}
    try:
        api.create("the SSH key can't be given to the account", api.client.ssh_keys.create, body)
    except RefusedError:
        if not _find_key(api, fingerprint):
            raise
    return fingerprint


def _find_key(api: Api, fingerprint: str) -> Json | None:
    listed = api.pages("the account's SSH keys can't be listed", api.client.ssh_keys.list, "ssh_keys")
    return next((fields for fields in listed if fields["fingerprint"] == fingerprint), None)


def _remove_key(tools: Tools, run_id: str) -> list[str]:
    """Remove the laptop's key once none of its runs needs it, unless somebody else had given it to the account."""
    fingerprint = tools.records.run(run_id).key
    if not fingerprint or any(run.id != run_id and run.key == fingerprint for run in tools.records.runs()):
        return []
    found = _find_key(tools.api, fingerprint)
    if found is None or not found["name"].startswith(_KEY_NAME):
        return []
    tools.api.delete("the SSH key can't be removed", tools.api.client.ssh_keys.delete, found["id"])
    return [f"removed SSH key {found['name']}"]


def _ensure_tag(api: Api, run_id: str) -> None:
    """Make the run's tag: a firewall can only name one that exists."""
    tag = run_tag(run_id)
    what = f"the tag {tag} can't be made"
    try:
        api.create(what, api.client.tags.create, {"name": tag})
    except RefusedError:
        if api.read(what, api.client.tags.get, tag) is None:
            raise


def _remove_tags(api: Api, run_id: str) -> list[str]:
    listed = api.pages("the tags can't be listed", api.client.tags.list, "tags")
    # A data volume that is kept goes on carrying its run's tag: it says whose it was.
    names = [
        fields["name"]
        for fields in listed
        if is_of_run(fields["name"], run_id) and not (fields.get("resources") or {}).get("count")
    ]
    for name in names:
        api.delete(f"the tag {name} can't be removed", api.client.tags.delete, name)
    return [f"removed tag {name}" for name in names]
