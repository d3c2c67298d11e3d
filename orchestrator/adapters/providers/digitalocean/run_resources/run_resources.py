"""A run's SSH key, tag, firewall and project: created before its first droplet, removed at the teardown."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from orchestrator.adapters.cloud.api import RunResources
from orchestrator.adapters.cloud.model import Chosen, Ready
from orchestrator.adapters.host.own_address import ask_own_network
from orchestrator.adapters.providers.digitalocean.run_resources.keys import ensure_key
from orchestrator.adapters.providers.digitalocean.run_resources.network import (
    await_applied,
    make_firewall,
    remove_firewalls,
    set_firewall,
)
from orchestrator.adapters.providers.digitalocean.run_resources.projects import (
    ensure_project,
    join_project,
    remove_projects,
)
from orchestrator.adapters.providers.digitalocean.tagging import ensure_tag
from orchestrator.adapters.providers.digitalocean.tags import is_of_run, run_tag
from orchestrator.core.values.network import parse_address_range

if TYPE_CHECKING:
    from orchestrator.adapters.providers.digitalocean.api import Api
    from orchestrator.adapters.providers.digitalocean.run_resources.record import DoRun, Records
    from orchestrator.core.machine import MachineOrder
    from orchestrator.core.ports import Clock

_log = logging.getLogger(__name__)


class DoResources(RunResources[Any, str]):
    """Implements `RunResources`; a creation needs the fingerprint of the SSH key.

    Args:
        api: the account's API.
        records: this computer's records.
        clock: for waits.
        account_id: returns the account's id.
    """

    def __init__(self, api: Api, records: Records, clock: Clock, account_id: Callable[[], str]) -> None:
        self._api = api
        self._records = records
        self._clock = clock
        self._account_id = account_id

    def ensure(self, order: MachineOrder, _chosen: Chosen[Any]) -> Ready[str]:
        """Create what is missing, and open port 22 to the caller's present address; no call if all is there."""
        ssh_from = _network_of(order.ssh_from)
        record = self._records.run(order.run_id)
        is_new = not record.key
        peers = record.peers or order.num_nodes > 1
        if is_new:
            self._note(order.run_id, account=self._account_id())
            record = self._note(order.run_id, key=ensure_key(self._api, order.authorized_key))
        if not record.firewall:
            self._ensure_tag(order.run_id)
            self._note(order.run_id, project=ensure_project(self._api, order.run_id))
            firewall = make_firewall(self._api, order.run_id, ssh_from, peers=peers)
            record = self._note(order.run_id, firewall=firewall, ssh_from=ssh_from, peers=peers)
        elif (record.ssh_from, record.peers) != (ssh_from, peers):
            record = self._open(replace(record, peers=peers), ssh_from)
        return Ready(native=record.key, is_new=is_new)

    def renew(self, order: MachineOrder) -> None:
        """Forget the key: the account no longer has it, or creations don't accept it yet."""
        self._note(order.run_id, key="")

    def adopt(self, run_id: str, instance_id: str) -> None:
        """Put a droplet into the run's project."""
        join_project(self._api, self._records.run(run_id).project, instance_id)

    def reopen(self, run_id: str, _region: str, ssh_from: str) -> bool:
        """Open port 22 of a run's machines to another address than the recorded one, and wait for the change."""
        record = self._records.run(run_id)
        network = _network_of(ssh_from)
        if not record.firewall or record.ssh_from == network:
            return False
        await_applied(self._api, self._clock, self._open(record, network).firewall)
        _log.info("port 22 of run %s is open to %s now, no longer to %s", run_id, network, record.ssh_from)
        return True

    def remove(self, run_id: str, _places: Sequence[str], *, is_full: bool) -> Sequence[str]:  # noqa: ARG002
        """Remove everything but the SSH key."""
        return [
            *remove_firewalls(self._api, run_id),
            *remove_projects(self._api, run_id),
            *self._remove_tags(run_id),
        ]

    def _note(self, run_id: str, **fields: Any) -> DoRun:
        return self._records.change_run(run_id, lambda record: replace(record, **fields), self._clock)

    def _open(self, record: DoRun, ssh_from: str) -> DoRun:
        firewall = set_firewall(self._api, record.firewall, record.id, ssh_from, peers=record.peers)
        return self._note(record.id, firewall=firewall, ssh_from=ssh_from, peers=record.peers)

    def _ensure_tag(self, run_id: str) -> None:
        """Create the run's tag: a firewall can only name an existing tag."""
        tag = run_tag(run_id)
        ensure_tag(self._api, tag, f"the tag {tag} can't be made")

    def _remove_tags(self, run_id: str) -> list[str]:
        listed = self._api.pages("the tags can't be listed", self._api.client.tags.list, "tags")
        # A data volume that is kept keeps its run's tag, which says who used it.
        names = [
            fields["name"]
            for fields in listed
            if is_of_run(fields["name"], run_id) and not (fields.get("resources") or {}).get("count")
        ]
        for name in names:
            self._api.delete(f"the tag {name} can't be removed", self._api.client.tags.delete, name)
        return [f"removed tag {name}" for name in names]


def _network_of(ssh_from: str) -> str:
    """Return the network to admit to port 22; defaults to this computer's present address."""
    return parse_address_range(ssh_from) or ask_own_network()
