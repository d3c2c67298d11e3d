"""The ledger's intent of a creation keeps its format, so that the next version can settle an unfinished one."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

from orchestrator.adapters.host.clock import SystemClock
from orchestrator.adapters.ledger.sqlite import SqliteLedger
from orchestrator.core.actions import CreateMachine
from orchestrator.core.errors import NoCapacityError
from orchestrator.core.job import Job, LaunchSpec
from orchestrator.core.offer import Accelerators, Offer
from orchestrator.core.plan import Plan
from orchestrator.engine.apply import apply
from orchestrator.engine.observing.observe import rented_offer
from tests.adapters.cloud.goldens import GOLDEN, Golden
from tests.support.fakes import FakeProvider, make_world

RUN = "digits-1121-ab2c"
M1 = f"{RUN}-m1"
SPOT = Offer(
    provider="aws",
    region="us-east-1",
    zone="us-east-1a",
    instance_type="g5.12xlarge",
    accelerators=Accelerators(name="a10g", count=4),
    gpu_memory_gib=22.35,
    cpus=48,
    memory_gib=192.0,
    disk_gib=100,
    usd_per_hour=Decimal("1.7019"),
    cap_usd_per_hour=Decimal("5.672"),
    disk_usd_per_hour=Decimal("0.0109589"),
    once_usd=Decimal("1.1472"),
    spot=True,
    local_disk_gib=3800,
)
PLAIN = Offer(
    provider="aws",
    region="eu-west-1",
    zone="",
    instance_type="m5.large",
    accelerators=None,
    gpu_memory_gib=0,
    cpus=2,
    memory_gib=8,
    disk_gib=15,
    usd_per_hour=Decimal("0.107"),
)
DROPLET = Offer(
    provider="do",
    region="tor1",
    zone="",
    instance_type="gpu-mi300x1-192gb",
    accelerators=Accelerators(name="mi300x"),
    gpu_memory_gib=192,
    cpus=20,
    memory_gib=240,
    disk_gib=720,
    usd_per_hour=Decimal("1.99"),
    billed_for_at_least=timedelta(minutes=1),
)


def test_each_attempt_writes_the_payload_of_the_golden_file(tmp_path: Path, golden: Golden) -> None:
    """One intent for each offer, with that offer only. The file equals the ledger's content byte for byte."""
    ledger = SqliteLedger(tmp_path, SystemClock())
    provider = FakeProvider(lambda order: NoCapacityError("sold out") if order.region != "tor1" else None)
    action = CreateMachine(
        machine_id=M1,
        offers=(SPOT, PLAIN, DROPLET),
        lifetime=timedelta(hours=3, seconds=1),
        starts=True,
        ssh_from="203.0.113.7/32",
    )
    world = make_world(ledger, provider)
    spec = LaunchSpec(run_id=RUN, provider="do", job=Job(name="digits"))
    apply(Plan(run_id=RUN, actions=(action,)), spec, world, lambda _event: None)
    intents = ledger.intents(RUN)
    assert rented_offer(world, RUN, M1) == DROPLET
    ledger.close()
    assert {(intent.kind, intent.subject) for intent in intents} == {("CreateMachine", M1)}
    payloads = [json.loads(intent.payload) for intent in intents]
    golden.compare("ledger.json", payloads)
    assert [intent.payload for intent in intents] == [json.dumps(each, separators=(",", ":")) for each in payloads]


def test_the_payloads_of_the_golden_file_say_which_offer_was_tried(tmp_path: Path) -> None:
    """An older version may have written them to its ledger."""
    for payload, offer in zip(json.loads((GOLDEN / "ledger.json").read_text()), (SPOT, PLAIN, DROPLET), strict=True):
        folder = tmp_path / offer.instance_type
        folder.mkdir()
        ledger = SqliteLedger(folder, SystemClock())
        now = SystemClock().now()
        ledger.open_run(LaunchSpec(run_id=RUN, provider="do", job=Job(name="digits")), now)
        intent = ledger.intend(RUN, CreateMachine(machine_id=M1, offers=(), lifetime=timedelta(0)), now)
        with closing(sqlite3.connect(folder / "ledger.db")) as db, db:
            db.execute("UPDATE intents SET payload = ? WHERE id = ?", (json.dumps(payload), intent))
        assert rented_offer(make_world(ledger, FakeProvider()), RUN, M1) == offer
        ledger.close()
