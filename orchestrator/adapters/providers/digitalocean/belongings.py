"""What a run has besides machines: SSH key, tag, firewall and project; made before its first droplet."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from orchestrator.adapters.providers.digitalocean.failures import RefusedError
from orchestrator.adapters.providers.digitalocean.keys import ensure_key
from orchestrator.adapters.providers.digitalocean.network import (
    await_applied,
    make_firewall,
    remove_firewalls,
    set_firewall,
)
from orchestrator.adapters.providers.digitalocean.projects import ensure_project, remove_projects
from orchestrator.adapters.providers.digitalocean.tags import is_of_run, run_tag
from orchestrator.adapters.providers.digitalocean.volume_ends import end_volumes

if TYPE_CHECKING:
    from orchestrator.adapters.providers.digitalocean.api import Api
    from orchestrator.adapters.providers.digitalocean.record import RunRecord
    from orchestrator.adapters.providers.digitalocean.tools import Tools
    from orchestrator.core.machine import MachineOrder

_log = logging.getLogger(__name__)


def ensure_belongings(tools: Tools, order: MachineOrder, ssh_from: str) -> RunRecord:
    """Make what is missing, and open port 22 to the caller's present address; no call where all is there.

    Raises:
        ApiError: the API doesn't allow it.
    """
    record = tools.records.run(order.run_id)
    if not record.key:
        record = _keep(tools, replace(record, account=tools.account.id))
        record = _keep(tools, replace(record, key=ensure_key(tools.api, order.authorized_key)))
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
    await_applied(tools.api, tools.clock, _open(tools, record, ssh_from).firewall)
    _log.info("port 22 of run %s is open to %s now, no longer to %s", run_id, ssh_from, record.ssh_from)
    return True


def remove_belongings(tools: Tools, run_id: str) -> Sequence[str]:
    """Remove it all but the SSH key, and settle the run's data volumes; what is gone already is no error.

    Returns:
        What was removed or kept, one line each.

    Raises:
        ApiError: the API doesn't allow it; the rest is tried again by the next call.
    """
    return [
        *end_volumes(tools.api, run_id, tools.clock),
        *remove_firewalls(tools.api, run_id),
        *remove_projects(tools.api, run_id),
        *_remove_tags(tools.api, run_id),
    ]


def _keep(tools: Tools, record: RunRecord) -> RunRecord:
    tools.records.keep_run(record)
    return record


def _open(tools: Tools, record: RunRecord, ssh_from: str) -> RunRecord:
    firewall = set_firewall(tools.api, record.firewall, record.id, ssh_from)
    return _keep(tools, replace(record, firewall=firewall, ssh_from=ssh_from))


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
