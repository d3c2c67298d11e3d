"""A run's resources at the fake account besides machines: a key, and guards for its machines."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import datetime, timedelta
from typing import Protocol, TypeVar

from orchestrator.adapters.cloud.api import RunResources
from orchestrator.adapters.cloud.model import Chosen, Ready
from orchestrator.core.errors import KedgeError
from orchestrator.core.machine import MachineOrder
from tests.support.fake_cloud.account import CLOSED, FakeCloud

_Seen = TypeVar("_Seen")


class Caller(Protocol):
    """A client of the account."""

    cloud: FakeCloud

    def call(self, name: str, act: Callable[[], _Seen]) -> _Seen:
        """Carry out a call, or fail."""


class FakeGuard:
    """Alarms that end machines from outside; implements `DeadlineGuard`."""

    noun = "alarm"
    soonest = timedelta(0)

    def __init__(self, api: Caller) -> None:
        self._api = api

    def arm(self, machine_id: str, instance_id: str, region: str, deadline_at: datetime) -> None:  # noqa: ARG002
        """Create a machine's alarm."""
        self._api.call("arm", lambda: self._api.cloud.guards.update({machine_id: (instance_id, deadline_at)}))

    def move(self, machine_id: str, instance_id: str, region: str, deadline_at: datetime) -> None:
        """Change a machine's alarm."""
        self.arm(machine_id, instance_id, region, deadline_at)

    def disarm(self, machine_id: str, region: str) -> bool:  # noqa: ARG002
        """Remove a machine's alarm."""
        return self._api.call("disarm", lambda: self._api.cloud.guards.pop(machine_id, None)) is not None

    def disarm_run(self, run_id: str, region: str, machine_ids: Collection[str] | None) -> Sequence[str]:
        """Remove the alarms of a run."""
        there = sorted(each for each in self._api.cloud.guards if each.rpartition("-m")[0] == run_id)
        wanted = there if machine_ids is None else [each for each in there if each in machine_ids]
        return [f"of {each}" for each in wanted if self.disarm(each, region)]

    def list_machines(self, region: str) -> Sequence[tuple[str, str]]:
        """List all alarms."""
        if region in self._api.cloud.closed:
            raise KedgeError("the alarms can't be listed", why=CLOSED)
        there = self._api.cloud.guards
        return [(f"alarm of {machine_id}", machine_id) for machine_id in there]


class FakeResources(RunResources[str, str]):
    """A run's key at the cloud; implements `RunResources`."""

    def __init__(self, api: Caller) -> None:
        self._api = api

    def ensure(self, order: MachineOrder, chosen: Chosen[str]) -> Ready[str]:  # noqa: ARG002
        """Add the key if it is missing."""
        cloud = self._api.cloud
        cloud.open_to[order.run_id] = order.ssh_from
        if order.run_id in cloud.keys:
            return Ready(native="key", is_new=cloud.clock.now() < cloud.keys[order.run_id], token_parts=("group",))
        self._api.call("ensure", lambda: cloud.keys.update({order.run_id: cloud.clock.now() + cloud.key_lag}))
        return Ready(native="key", is_new=True, token_parts=("group",))

    def renew(self, order: MachineOrder) -> None:
        """Drop the key."""
        self._api.cloud.keys.pop(order.run_id, None)

    def adopt(self, run_id: str, instance_id: str) -> None:  # noqa: ARG002
        """Change nothing, by a call that may fail."""
        self._api.call("adopt", lambda: None)

    def reopen(self, run_id: str, region: str, ssh_from: str) -> bool:  # noqa: ARG002
        """Open port 22 to another address range."""
        opened = self._api.cloud.open_to.get(run_id) != ssh_from
        self._api.cloud.open_to[run_id] = ssh_from
        return opened

    def remove(self, run_id: str, places: Sequence[str], *, is_full: bool) -> Sequence[str]:  # noqa: ARG002
        """Remove the key."""
        assert list(places) == [self._api.cloud.place]
        removed = self._api.call("remove", lambda: self._api.cloud.keys.pop(run_id, None))
        return [f"removed key of {run_id}"] if removed else []
