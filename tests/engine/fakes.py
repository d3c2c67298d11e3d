"""A provider that does as it is told, and a world around it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import cast

from orchestrator.adapters.clock import SystemClock
from orchestrator.adapters.ledger import SqliteLedger
from orchestrator.core.errors import KedgeError
from orchestrator.core.job import Resources
from orchestrator.core.machine import Machine, MachineEnd, MachineOrder, MachineState
from orchestrator.core.offer import Offer
from orchestrator.core.ports import Connector, DataMover, Supplies
from orchestrator.core.sweep import Sweep
from orchestrator.engine.world import World

RUN = "digits-1"
M1 = f"{RUN}-m1"
NOW = datetime.now(UTC)
MACHINE = Machine(
    id=M1,
    run_id=RUN,
    provider="fake",
    provider_id="x",
    state=MachineState.READY,
    root="/nowhere",
    created_at=NOW,
    deadline_at=NOW + timedelta(hours=1),
    usd_per_hour=Decimal(1),
)


def nothing_refused(_order: MachineOrder) -> None:
    """Take every order."""


@dataclass
class FakeProvider:
    """Refuses what it is told to, in the order of asking.

    Attributes:
        there: what `machines` lists.
        unguarded: why no machine can be guarded; None where each can.
        guarded: which machines were.
        ends: what it says of machines that have ended.
        unexplained: why it says nothing of them; None where it does.
    """

    refuse: Callable[[MachineOrder], KedgeError | None] = nothing_refused
    name: str = "fake"
    boots_alone: bool = False
    offers_basis: str = "live"
    caveats: tuple[str, ...] = ()
    ends_by_itself: bool = True
    orders: list[MachineOrder] = field(default_factory=list)
    there: tuple[Machine, ...] = ()
    unguarded: KedgeError | None = None
    guarded: list[str] = field(default_factory=list)
    ends: dict[str, MachineEnd] = field(default_factory=dict)
    unexplained: KedgeError | None = None

    def create(self, order: MachineOrder) -> Machine:
        self.orders.append(order)
        if refusal := self.refuse(order):
            raise refusal
        now = datetime.now(UTC)
        return Machine(
            id=order.id,
            run_id=order.run_id,
            provider=self.name,
            provider_id="x",
            state=MachineState.BOOTING,
            root="/nowhere",
            created_at=now,
            deadline_at=now + timedelta(seconds=order.lifetime_seconds),
            usd_per_hour=order.usd_per_hour,
        )

    def offers(self, resources: Resources) -> Sequence[Offer]:
        raise AssertionError(resources)

    def refresh_offers(self) -> str:
        raise AssertionError

    def machines(self) -> Sequence[Machine]:
        return self.there

    def sweep(self) -> Sweep:
        return Sweep(machines=tuple(self.machines()))

    def describe(self, machine_id: str) -> Machine | None:
        return next((machine for machine in self.there if machine.id == machine_id), None)

    def why_ended(self, machine_id: str) -> MachineEnd | None:
        if self.unexplained is not None:
            raise self.unexplained
        return self.ends.get(machine_id)

    def supplies(self, machine_id: str) -> Supplies | None:
        raise AssertionError(machine_id)

    def pin(self, machine_id: str, host_key: str) -> None:
        raise AssertionError(machine_id, host_key)

    def guard(self, machine_id: str) -> None:
        if self.unguarded is not None:
            raise self.unguarded
        self.guarded.append(machine_id)

    def reopen(self, machine_id: str, ssh_from: str) -> bool:
        raise AssertionError(machine_id, ssh_from)

    def destroy(self, machine_id: str) -> None:
        raise AssertionError(machine_id)

    def release(self, run_id: str) -> Sequence[str]:
        return (run_id,)


def make_world(ledger: SqliteLedger, provider: FakeProvider) -> World:
    """Put a world together in which nothing can be reached but the provider."""
    return World(
        clock=SystemClock(),
        ledger=ledger,
        provider=provider,
        connector=cast("Connector", None),
        data=cast("DataMover", None),
        store=None,
        stage=None,
        code=lambda _job: None,
        authorized_key="ssh-ed25519 AAAA",
        agent_archive=lambda: b"",
        render_unit=lambda _job, _root: "",
        environ={},
    )
