"""Which offers are tried when some have no capacity, and what is recorded of each attempt."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from orchestrator.adapters.host.clock import SystemClock
from orchestrator.adapters.ledger.sqlite import SqliteLedger
from orchestrator.core.actions import CreateMachine
from orchestrator.core.errors import KedgeError, NoCapacityError, StillBillingError
from orchestrator.core.job import Job, LaunchSpec
from orchestrator.core.machine import MachineOrder
from orchestrator.core.offer import Offer
from orchestrator.core.plan import Plan
from orchestrator.engine.apply import apply
from orchestrator.engine.events import Event, Remark
from tests.support.fakes import FakeProvider, make_world

SPEC = LaunchSpec(run_id="digits-1", provider="fake", job=Job(name="digits"))


def offer(region: str, zone: str, kind: str, *, spot: bool = True) -> Offer:
    """Make an offer of one type in one zone."""
    return Offer(
        provider="fake",
        region=region,
        zone=zone,
        instance_type=kind,
        accelerators=None,
        gpu_memory_gib=0,
        cpus=4,
        memory_gib=16,
        disk_gib=100,
        usd_per_hour=Decimal(1),
        disk_usd_per_hour=Decimal("0.5"),
        spot=spot,
    )


OFFERS = (
    offer("us-east-1", "a", "g4dn.xlarge"),
    offer("us-east-1", "b", "g4dn.xlarge"),
    offer("us-west-2", "a", "g4dn.xlarge"),
    offer("us-east-1", "a", "g4dn.xlarge", spot=False),
)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[SqliteLedger]:
    opened = SqliteLedger(tmp_path, SystemClock())
    yield opened
    opened.close()


def create(ledger: SqliteLedger, provider: FakeProvider) -> list[str]:
    """Carry out a plan that only creates, and return the messages."""
    said: list[str] = []

    def listen(event: Event) -> None:
        if isinstance(event, Remark):
            said.append(event.text)

    action = CreateMachine(machine_id="digits-1-m1", offers=OFFERS, lifetime=timedelta(hours=1))
    apply(Plan(run_id="digits-1", actions=(action,)), SPEC, make_world(ledger, provider), listen)
    return said


def places(provider: FakeProvider) -> list[tuple[str, str, bool]]:
    """Return where machines were requested."""
    return [(order.region, order.zone, order.spot) for order in provider.orders]


def test_a_zone_without_capacity_is_followed_by_the_next(ledger: SqliteLedger) -> None:
    """The refusal is reported; the machine's price is that of its own offer, disks included."""
    provider = FakeProvider(lambda order: NoCapacityError("sold out") if order.zone == "a" and order.spot else None)
    said = create(ledger, provider)
    assert places(provider) == [("us-east-1", "a", True), ("us-east-1", "b", True)]
    assert said == ["fake/us-east-1/a g4dn.xlarge: sold out"]
    assert [machine.usd_per_hour for machine in ledger.machines("digits-1")] == [Decimal("1.5")]


def test_a_quota_rules_out_its_region_and_market(ledger: SqliteLedger) -> None:
    """Other zones of the region aren't tried; another region is, and so would be the other market."""

    def refuse(order: MachineOrder) -> KedgeError | None:
        if order.region != "us-east-1" or not order.spot:
            return None
        return NoCapacityError("quota", covers=lambda other: other.region == order.region and other.spot == order.spot)

    provider = FakeProvider(refuse)
    create(ledger, provider)
    assert places(provider) == [("us-east-1", "a", True), ("us-west-2", "a", True)]


def test_an_unclear_creation_is_never_followed_by_another(ledger: SqliteLedger) -> None:
    """It could create a second machine: the intent stays open for the next command."""
    provider = FakeProvider(lambda _order: StillBillingError("no answer"))
    with pytest.raises(StillBillingError):
        create(ledger, provider)
    assert len(provider.orders) == 1
    assert [intent.subject for intent in ledger.open_intents("digits-1")] == ["digits-1-m1"]


def test_without_capacity_anywhere_every_refusal_is_named(ledger: SqliteLedger) -> None:
    """The error lists each place with its reason, and no intent is left open."""
    provider = FakeProvider(lambda _order: NoCapacityError("sold out"))
    with pytest.raises(NoCapacityError) as caught:
        create(ledger, provider)
    assert caught.value.why.count("sold out") == len(OFFERS)
    assert ledger.open_intents("digits-1") == ()
