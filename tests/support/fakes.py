"""A fake provider whose answers tests set, and a world around it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import cast

from orchestrator.adapters.host.clock import SystemClock
from orchestrator.adapters.host.ids import check_id
from orchestrator.adapters.host.retry import poll_until
from orchestrator.adapters.ledger.sqlite import SqliteLedger
from orchestrator.core.errors import BadRequestError, KedgeError
from orchestrator.core.job import Resources
from orchestrator.core.machine import Machine, MachineEnd, MachineOrder, MachineState, SshAddress
from orchestrator.core.offer import Offer
from orchestrator.core.ports import Connector, Supplies
from orchestrator.core.sweep import Leftover, Sweep, UnseenPart
from orchestrator.core.transfers import DataMover
from orchestrator.engine.world import World
from tests.support.orders import make_offer

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
    # Later than the last test of a slow run: NOW is when the first was collected.
    deadline_at=NOW + timedelta(hours=24),
    usd_per_hour=Decimal(1),
)
_ADDRESS = SshAddress(
    host="192.0.2.1", port=22, user="kedge", host_key="ssh-ed25519 AAAA", key_file="/nowhere", provisional=True
)


def nothing_refused(_order: MachineOrder) -> None:
    """Refuse no order."""


@dataclass
class FakeProvider:
    """A provider in memory, which refuses the orders that a test chooses.

    Attributes:
        boots: the machines that it makes are ready at once; else they stay BOOTING.
        there: the machines that `machines` lists.
        leftovers: what runs have besides machines, until they are released.
        unseen: the parts that a sweep can't list.
        unguarded: why no machine can be guarded; None if all can.
        guarded: the machines that were guarded.
        unmovable: why no machine's deadline can be moved; None if all can.
        moved: the machines whose deadlines were moved, and where.
        released: the runs that were released.
        ends: the reasons that it gives for machines that have ended.
        unexplained: why it gives no reasons; None if it does.
    """

    refuse: Callable[[MachineOrder], KedgeError | None] = nothing_refused
    name: str = "fake"
    can_start_at_boot: bool = False
    offers_basis: str = "live"
    caveats: tuple[str, ...] = ()
    ends_by_itself: bool = True
    boots: bool = False
    orders: list[MachineOrder] = field(default_factory=list)
    there: tuple[Machine, ...] = ()
    leftovers: tuple[Leftover, ...] = ()
    unseen: tuple[UnseenPart, ...] = ()
    unguarded: KedgeError | None = None
    guarded: list[str] = field(default_factory=list)
    unmovable: KedgeError | None = None
    moved: list[tuple[str, datetime]] = field(default_factory=list)
    released: list[str] = field(default_factory=list)
    ends: dict[str, MachineEnd] = field(default_factory=dict)
    unexplained: KedgeError | None = None

    def create(self, order: MachineOrder) -> Machine:
        self.orders.append(order)
        if refusal := self.refuse(order):
            raise refusal
        known = self.describe(order.id)
        if known is not None:
            return known
        made = self.make(order)
        self.there = (*self.there, made)
        return made

    def make(self, order: MachineOrder) -> Machine:
        """Make a machine without listing it."""
        now = datetime.now(UTC)
        return Machine(
            id=order.id,
            run_id=order.run_id,
            provider=self.name,
            provider_id="x",
            state=MachineState.READY if self.boots else MachineState.BOOTING,
            root="/nowhere",
            created_at=now,
            deadline_at=now + timedelta(seconds=order.lifetime_seconds),
            usd_per_hour=order.usd_per_hour,
            address=_ADDRESS if self.boots else None,
            rank=order.rank,
            private_address=f"192.0.2.{order.rank + 1}",
        )

    def offers(self, resources: Resources) -> Sequence[Offer]:
        if not set(resources.regions) <= {"earth"}:
            raise BadRequestError(f"there are no regions {resources.regions}")
        return [] if resources.accelerators else [make_offer(self.name, "large", "earth", usd_per_hour=Decimal(1))]

    def refresh_offers(self) -> str:
        return "nowhere"

    def machines(self) -> Sequence[Machine]:
        return self.there

    def sweep(self) -> Sweep:
        return Sweep(machines=tuple(self.machines()), leftovers=self.leftovers, unseen=self.unseen)

    def describe(self, machine_id: str) -> Machine | None:
        return next((machine for machine in self.there if machine.id == machine_id), None)

    def why_ended(self, machine_id: str) -> MachineEnd | None:
        if self.unexplained is not None:
            raise self.unexplained
        return self.ends.get(machine_id)

    def supplies(self, machine_id: str, secrets: Mapping[str, str]) -> Supplies | None:  # noqa: ARG002
        """Return None: its machines need no bundle."""
        return None

    def pin(self, machine_id: str, host_key: str) -> None:
        self.there = tuple(_pinned(each, host_key) if each.id == machine_id else each for each in self.there)

    def guard(self, machine_id: str) -> None:
        if self.unguarded is not None:
            raise self.unguarded
        self.guarded.append(machine_id)

    def move_deadline(self, machine_id: str, deadline_at: datetime) -> Sequence[str]:
        check_id(machine_id)
        if self.describe(machine_id) is None:
            raise KedgeError(f"there is no machine {machine_id}")
        if self.unmovable is not None:
            raise self.unmovable
        self.moved.append((machine_id, deadline_at))
        moved = (replace(each, deadline_at=deadline_at) if each.id == machine_id else each for each in self.there)
        self.there = tuple(moved)
        return ()

    def reopen(self, machine_id: str, ssh_from: str) -> bool:  # noqa: ARG002
        """Change nothing: its machines are open to everybody."""
        return False

    def destroy(self, machine_id: str) -> None:
        check_id(machine_id)
        self.there = tuple(each for each in self.there if each.id != machine_id)

    def delete_volume(self, volume_id: str, region: str) -> None:
        self.leftovers = tuple(left for left in self.leftovers if (left.id, left.region) != (volume_id, region))

    def release(self, run_id: str) -> Sequence[str]:
        self.released.append(run_id)
        self.leftovers = tuple(left for left in self.leftovers if left.run_id != run_id or left.kept)
        return ("removed the rest", *(f"kept {left.name}" for left in self.leftovers))


def _pinned(machine: Machine, host_key: str) -> Machine:
    assert machine.address is not None
    return replace(machine, address=replace(machine.address, host_key=host_key, provisional=False))


def make_world(ledger: SqliteLedger, provider: FakeProvider) -> World:
    """Make a world in which only the provider can be reached."""
    return World(
        clock=SystemClock(),
        poll_until=poll_until,
        ledger=ledger,
        provider=provider,
        connector=cast("Connector", None),
        mover=cast("DataMover", None),
        store=None,
        stage=None,
        code_source=lambda _job: None,
        authorized_key="ssh-ed25519 AAAA",
        agent_archive=lambda: b"",
        group_token=lambda run_id: f"token of {run_id}",
        render_unit=lambda _job, _root: "",
        environ={},
    )
