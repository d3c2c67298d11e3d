"""Reaping: what was found is ended by the rules of a teardown, and another computer's run by its marks alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from orchestrator.adapters.clock import SystemClock
from orchestrator.adapters.ledger import SqliteLedger
from orchestrator.core.actions import CreateMachine, DestroyMachine, StartCommand
from orchestrator.core.errors import ConflictError
from orchestrator.core.job import Job, LaunchSpec, SupervisorKind
from orchestrator.core.ledger import IntentState
from orchestrator.core.machine import Machine, MachineState
from orchestrator.core.offer import Offer
from orchestrator.core.sweep import Leftover, Sweep, UnseenPart
from orchestrator.engine.events import Event
from orchestrator.engine.reap import reap, survey
from orchestrator.engine.world import World
from tests.engine.fakes import FakeProvider, make_world

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
    created_at=NOW - timedelta(hours=2),
    deadline_at=NOW + timedelta(hours=1),
    usd_per_hour=Decimal(1),
)
LATE = replace(MACHINE, deadline_at=NOW - timedelta(hours=1))
SILENT = UnseenPart(what="eu-west-9: timed out")
VOLUME = Leftover(kind="data volume", name="scans", run_id=RUN, usd_per_hour=Decimal("0.01"))
OFFER = Offer(
    provider="fake",
    region="",
    zone="",
    instance_type="toy",
    accelerators=None,
    gpu_memory_gib=0,
    cpus=1,
    memory_gib=1,
    disk_gib=1,
    usd_per_hour=Decimal(1),
)


@dataclass
class Cloud(FakeProvider):
    """Ends what it is told to, and remembers it."""

    leftovers: tuple[Leftover, ...] = ()
    unseen: tuple[UnseenPart, ...] = ()
    released: list[str] = field(default_factory=list)

    def sweep(self) -> Sweep:
        return Sweep(machines=self.there, leftovers=self.leftovers, unseen=self.unseen)

    def destroy(self, machine_id: str) -> None:
        self.there = tuple(machine for machine in self.there if machine.id != machine_id)

    def release(self, run_id: str) -> Sequence[str]:
        self.released.append(run_id)
        self.leftovers = tuple(left for left in self.leftovers if left.run_id != run_id or left.kept)
        return ("removed the rest", *(f"kept {left.name}" for left in self.leftovers))


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[SqliteLedger]:
    """The ledger of a laptop with one run, whose machine's creation was begun."""
    opened = SqliteLedger(tmp_path, SystemClock())
    opened.open_run(LaunchSpec(run_id=RUN, provider="fake", job=Job(name="digits", run="train")), NOW)
    opened.intend(RUN, CreateMachine(machine_id=M1, offers=(OFFER,), lifetime=timedelta(hours=1)), NOW)
    yield opened
    opened.close()


def start_training(ledger: SqliteLedger) -> None:
    """Leave what a launch leaves that has started the command."""
    ledger.put_machine(MACHINE)
    start = StartCommand(machine_id=M1, supervisor=SupervisorKind.TMUX, resumes=False)
    for intent in (ledger.open_intents(RUN)[0].id, ledger.intend(RUN, start, NOW)):
        ledger.settle(intent, IntentState.DONE, NOW)


def nobody_hears(_event: Event) -> None:
    """Take what is told."""


def reap_all(world: World, *, everyone: bool = False) -> None:
    """Reap what is found."""
    for reaping in survey(world, everyone=everyone).reapings:
        if reaping.acts:
            reap(world, reaping, nobody_hears)


def test_a_launch_that_died_leaves_nothing(ledger: SqliteLedger) -> None:
    """Machine and volume are gone, the run is closed, its intents are settled, and the end was journaled."""
    kept = replace(VOLUME, name="kept", kept=True)
    cloud = Cloud(there=(MACHINE,), leftovers=(VOLUME, kept))
    world = make_world(ledger, cloud)
    reap_all(world)
    assert (cloud.there, cloud.leftovers) == ((), (kept,))
    assert (ledger.runs(live_only=True), ledger.machines(live_only=True), ledger.open_intents(RUN)) == ((), (), ())
    assert DestroyMachine.__name__ in [intent.kind for intent in ledger.intents(RUN)]
    after = survey(world, everyone=False)
    assert (after.reapings, after.kept) == ((), (kept,))


def test_a_run_that_trains_is_found_clean(ledger: SqliteLedger) -> None:
    """Its machine is in the ledger, its command was started, its deadline is ahead."""
    start_training(ledger)
    assert survey(make_world(ledger, Cloud(there=(MACHINE,), leftovers=(VOLUME,))), everyone=True).reapings == ()


def test_looking_changes_nothing(ledger: SqliteLedger) -> None:
    """Neither at the provider nor in the ledger."""
    cloud = Cloud(there=(LATE,), leftovers=(VOLUME,))
    before = ledger.intents(RUN), ledger.machines(), ledger.runs()
    (reaping,) = survey(make_world(ledger, cloud), everyone=True).reapings
    assert reaping.acts
    assert (cloud.there, cloud.released) == ((LATE,), [])
    assert (ledger.intents(RUN), ledger.machines(), ledger.runs()) == before


def test_another_command_that_is_at_work_is_not_disturbed(ledger: SqliteLedger) -> None:
    """A launch that has just begun looks like one that died, but for its lock."""
    world = make_world(ledger, Cloud(there=(MACHINE,)))
    with ledger.lock(RUN):
        assert survey(world, everyone=False).reapings == ()


def test_a_command_that_its_machine_keeps_waiting_does_not_keep_the_machine(ledger: SqliteLedger) -> None:
    """Such as a teardown to which results come a byte at a time: the run's lock is held until the machine is gone."""
    start_training(ledger)
    cloud = Cloud(there=(LATE,), leftovers=(VOLUME,))
    world = make_world(ledger, cloud)
    with ledger.lock(RUN):
        reap_all(world)
    assert (cloud.there, cloud.leftovers) == ((), (VOLUME,)), "what else the run has is for whoever holds the lock"


def test_a_run_that_was_acted_on_since_the_look_is_left(ledger: SqliteLedger) -> None:
    """What was agreed to may not be what is there any more."""
    cloud = Cloud(there=(MACHINE,))
    world = make_world(ledger, cloud)
    (reaping,) = survey(world, everyone=False).reapings
    start_training(ledger)
    with pytest.raises(ConflictError, match="since it was looked at"):
        reap(world, reaping, nobody_hears)
    assert cloud.there == (MACHINE,)


def test_an_entry_of_a_machine_that_is_gone_is_settled(ledger: SqliteLedger) -> None:
    """The meter stops, and the run may be gone on with."""
    start_training(ledger)
    reap_all(make_world(ledger, Cloud()))
    assert ledger.machines(live_only=True) == ()
    assert [run.run_id for run in ledger.runs(live_only=True)] == [RUN]


def test_what_a_closed_run_still_has_is_released(ledger: SqliteLedger) -> None:
    """A second look finds nothing."""
    ledger.end_run(RUN, NOW)
    cloud = Cloud(leftovers=(VOLUME,))
    world = make_world(ledger, cloud)
    reap_all(world)
    assert cloud.leftovers == ()
    assert survey(world, everyone=False).reapings == ()


def test_a_stranger_s_machine_is_ended_without_a_word_in_the_ledger(tmp_path: Path) -> None:
    """The reaper's own computer knows no run: marks alone say what is past its deadline, and what belongs to it."""
    ledger = SqliteLedger(tmp_path, SystemClock())
    living = replace(MACHINE, id="other-1-m1", run_id="other-1")
    cloud = Cloud(there=(LATE, living), leftovers=(VOLUME,))
    world = make_world(ledger, cloud)
    reap_all(world, everyone=False)
    assert cloud.there == (LATE, living)
    reap_all(world, everyone=True)
    assert list(cloud.there) == [living]
    assert cloud.released == [RUN]
    assert (ledger.runs(), ledger.machines()) == ((), ())
    ledger.close()


def test_what_did_not_answer_is_named(ledger: SqliteLedger) -> None:
    """A region that is silent must not pass for an empty one."""
    start_training(ledger)
    world = make_world(ledger, Cloud(there=(MACHINE,), unseen=(SILENT,)))
    assert survey(world, everyone=False).unseen == (SILENT,)
