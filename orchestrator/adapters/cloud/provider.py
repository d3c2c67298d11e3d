"""`CloudProvider`: the port `Provider` for all clouds, implemented over a cloud's `CloudApi`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from orchestrator.adapters.cloud.boot.bootstrap_bundle import agent_archive, pack_bootstrap_bundle
from orchestrator.adapters.cloud.lifecycle.completing import guard_machine
from orchestrator.adapters.cloud.lifecycle.creation import create_instance
from orchestrator.adapters.cloud.lifecycle.deletion import delete_machine
from orchestrator.adapters.cloud.lifecycle.moving import move_deadline
from orchestrator.adapters.cloud.listing import find_all, map_all, map_listed, map_missing
from orchestrator.adapters.cloud.model import Wanted, present
from orchestrator.adapters.cloud.release import release_run
from orchestrator.adapters.cloud.sweep import sweep_account
from orchestrator.adapters.cloud.volumes.end import delete_volume
from orchestrator.adapters.host.ids import check_id
from orchestrator.adapters.ssh.keys import derive_secret
from orchestrator.core.errors import BadRequestError, KedgeError
from orchestrator.core.machine import CLOUD_ROOT
from orchestrator.core.ports import Supplies
from orchestrator.core.protocol.wire import RUN_SECRETS

if TYPE_CHECKING:
    from datetime import datetime

    from orchestrator.adapters.cloud.context import CloudContext
    from orchestrator.adapters.cloud.market import OfferSource
    from orchestrator.core.job import Resources
    from orchestrator.core.machine import Machine, MachineEnd, MachineOrder
    from orchestrator.core.offer import Offer
    from orchestrator.core.sweep import Sweep


class CloudProvider:
    """Implements `core.ports.Provider`, whose methods say what they do.

    Args:
        ctx: the cloud, and this computer's records.
        market: the cloud's offers.
        ends_by_itself: a machine that nobody looks after stops billing at its deadline.
        caveats: remarks about every machine there, for the plan.
    """

    def __init__(
        self, ctx: CloudContext, market: OfferSource, *, ends_by_itself: bool, caveats: tuple[str, ...] = ()
    ) -> None:
        self.name = ctx.traits.name
        # A machine without a role receives the agent over its first connection, and the rest from the bucket.
        self.can_start_at_boot = ctx.traits.boot.carries_bootstrap or ctx.bucket is not None
        self.ends_by_itself = ends_by_itself
        self.offers_basis = "live"
        self.caveats = caveats
        self._ctx = ctx
        self._market = market
        self._caveats = caveats

    def offers(self, resources: Resources) -> Sequence[Offer]:
        """List the fitting offers, the first to be tried first."""
        listing = self._market.offers(resources)
        self.offers_basis = listing.basis
        self.caveats = (*self._caveats, *listing.caveats)
        return listing.offers

    def refresh_offers(self) -> str:
        """Rewrite the snapshot of prices for offline plans, and return its path."""
        return self._market.refresh()

    def machines(self) -> Sequence[Machine]:
        """List every machine that isn't gone, in the places in records and configuration."""
        return map_all(self._ctx, find_all(self._ctx, Wanted(), self._ctx.places()))

    def sweep(self) -> Sweep:
        """List everything with kedge's marks, in every place of the account."""
        return sweep_account(self._ctx)

    def create(self, order: MachineOrder) -> Machine:
        """Create the machine, or return the one that already has the order's id."""
        return map_listed(self._ctx, replace(create_instance(self._ctx, order), machine_id=order.id))

    def describe(self, machine_id: str) -> Machine | None:
        """Look one machine up; None if the cloud confirms that it is gone, or never had it.

        Without a record, only the places in records and configuration are queried, if there are any.
        """
        ctx = self._ctx
        record = ctx.records.machine(check_id(machine_id))
        found = ctx.find(machine_id, record)
        living = present(found)
        if living:
            return map_listed(ctx, living[0])
        if record is None or ctx.is_settled(record, found):
            return None
        ctx.refuse_other_account_of(record)
        return map_missing(ctx, record)

    def why_ended(self, machine_id: str) -> MachineEnd | None:
        """Say what has ended a machine, as long as the cloud tells."""
        ctx = self._ctx
        record = ctx.records.machine(check_id(machine_id))
        return ctx.api.why_ended(record, ctx.find(machine_id, record), ctx.clock.now())

    def supplies(self, machine_id: str, secrets: Mapping[str, str]) -> Supplies | None:
        """Return what a machine must be sent: its agent, and the secrets that user-data must not contain."""
        ctx = self._ctx
        record = ctx.records.machine(check_id(machine_id))
        if ctx.traits.boot.carries_bootstrap:
            return None
        run_id = record.run_id if record else machine_id
        seal = derive_secret(ctx.key_file, f"seal {run_id}") if ctx.bucket else ""
        return pack_bootstrap_bundle(
            CLOUD_ROOT,
            agent_archive(),
            for_user={
                **(ctx.bucket.secret_files(seal) if ctx.bucket else {}),
                **({RUN_SECRETS: json.dumps(dict(secrets))} if secrets else {}),
            },
            for_root=ctx.api.supplies_for_root(),
        )

    def pin(self, machine_id: str, host_key: str) -> None:
        """Remember the host key that has replaced a machine's provisional one."""
        record = self._ctx.records.machine(check_id(machine_id))
        if record is None:
            raise KedgeError(f"this computer has no record of machine {machine_id}")
        self._ctx.records.keep_machine(replace(record, host_key=host_key, pinned=True))

    def guard(self, machine_id: str) -> None:
        """Complete what a killed creation has left undone, including the guard that ends the machine from outside."""
        guard_machine(self._ctx, check_id(machine_id))

    def move_deadline(self, machine_id: str, deadline_at: datetime) -> Sequence[str]:
        """Move it in the record, in the instance's marks, and in the guard."""
        return move_deadline(self._ctx, check_id(machine_id), deadline_at)

    def reopen(self, machine_id: str, ssh_from: str) -> bool:
        """Admit a range, or this computer's present address, to port 22 of the run's machines."""
        record = self._ctx.records.machine(check_id(machine_id))
        # Without a record its host key isn't known here: an open port would be useless.
        self._ctx.refuse_other_account_of(record)
        return record is not None and self._ctx.api.resources.reopen(record.run_id, record.region, ssh_from)

    def destroy(self, machine_id: str) -> None:
        """End every instance with the machine's id, and delete its guard."""
        delete_machine(self._ctx, check_id(machine_id))

    def delete_volume(self, volume_id: str, region: str) -> None:
        """Delete a data volume that kedge made and that no machine has."""
        volumes = self._ctx.api.volumes
        if volumes is None:
            raise BadRequestError(f"{self.name} has no data volumes")
        delete_volume(volumes, volume_id, region, self._ctx.clock)

    def release(self, run_id: str) -> Sequence[str]:
        """Remove the run's resources and end its data volumes, once it has no machine left."""
        return release_run(self._ctx, run_id)
