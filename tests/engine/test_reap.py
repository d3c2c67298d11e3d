"""Reaping ends its findings by the rules of a teardown; it ends another computer's run by its marks alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from orchestrator.adapters.host.clock import SystemClock
from orchestrator.adapters.ledger.sqlite import SqliteLedger
from orchestrator.core.actions import CreateMachine, DestroyMachine, ReleaseRun, StartCommand
from orchestrator.core.errors import ConflictError
from orchestrator.core.job import Job, LaunchSpec
from orchestrator.core.ledger import IntentState
from orchestrator.core.offer import Offer
from orchestrator.core.sweep import Leftover, UnseenPart
from orchestrator.core.task import SupervisorKind, Task
from orchestrator.engine.events import Event
from orchestrator.engine.reap import reap, survey_provider
from orchestrator.engine.world import World
from tests.support.fakes import M1, NOW, RUN, FakeProvider, make_world
from tests.support.fakes import MACHINE as STARTED

MACHINE = replace(STARTED, created_at=NOW - timedelta(hours=2))
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


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[SqliteLedger]:
    """The ledger of a laptop with one run, whose machine's creation was begun."""
    opened = SqliteLedger(tmp_path, SystemClock())
    opened.open_run(LaunchSpec(run_id=RUN, provider="fake", job=Job(name="digits", tasks=(Task(run="train"),))), NOW)
    opened.intend(RUN, CreateMachine(machine_id=M1, offers=(OFFER,), lifetime=timedelta(hours=1)), NOW)
    yield opened
    opened.close()


def start_training(ledger: SqliteLedger) -> None:
    """Leave the state of a launch that has started the command."""
    ledger.put_machine(MACHINE)
    start = StartCommand(machine_id=M1, supervisor=SupervisorKind.TMUX, resumes=False)
    for intent in (ledger.open_intents(RUN)[0].id, ledger.intend(RUN, start, NOW)):
        ledger.close_intent(intent, IntentState.DONE, NOW)


def ignore_messages(_event: Event) -> None:
    """Ignore messages."""


def reap_all(world: World, *, everyone: bool = False) -> None:
    """Reap all findings."""
    for reaping in survey_provider(world, everyone=everyone).reapings:
        if reaping.acts:
            reap(world, reaping, ignore_messages)


def test_a_launch_that_died_leaves_nothing(ledger: SqliteLedger) -> None:
    """Machine and volume are gone, the run is closed, its intents are settled, and the end was journaled."""
    kept = replace(VOLUME, name="kept", kept=True)
    cloud = FakeProvider(there=(MACHINE,), leftovers=(VOLUME, kept))
    world = make_world(ledger, cloud)
    reap_all(world)
    assert (cloud.there, cloud.leftovers) == ((), (kept,))
    assert (ledger.runs(live_only=True), ledger.machines(live_only=True), ledger.open_intents(RUN)) == ((), (), ())
    assert [intent.kind for intent in ledger.intents(RUN)][-2:] == [DestroyMachine.__name__, ReleaseRun.__name__]
    after = survey_provider(world, everyone=False)
    assert (after.reapings, after.kept) == ((), (kept,))


def test_a_training_run_is_no_finding(ledger: SqliteLedger) -> None:
    """Its machine is in the ledger, its command was started, its deadline is in the future."""
    start_training(ledger)
    assert (
        survey_provider(make_world(ledger, FakeProvider(there=(MACHINE,), leftovers=(VOLUME,))), everyone=True).reapings
        == ()
    )


def test_a_survey_changes_nothing(ledger: SqliteLedger) -> None:
    """Neither at the provider nor in the ledger."""
    cloud = FakeProvider(there=(LATE,), leftovers=(VOLUME,))
    before = ledger.intents(RUN), ledger.machines(), ledger.runs()
    (reaping,) = survey_provider(make_world(ledger, cloud), everyone=True).reapings
    assert reaping.acts
    assert (cloud.there, cloud.released) == ((LATE,), [])
    assert (ledger.intents(RUN), ledger.machines(), ledger.runs()) == before


def test_another_command_that_is_at_work_is_not_disturbed(ledger: SqliteLedger) -> None:
    """A launch that has just begun looks like one that died, except for its lock."""
    world = make_world(ledger, FakeProvider(there=(MACHINE,)))
    with ledger.lock(RUN):
        assert survey_provider(world, everyone=False).reapings == ()


def test_a_command_that_waits_for_its_machine_does_not_protect_it(ledger: SqliteLedger) -> None:
    """For example a teardown that gets results byte by byte: it holds the run's lock until the machine is gone."""
    start_training(ledger)
    cloud = FakeProvider(there=(LATE,), leftovers=(VOLUME,))
    world = make_world(ledger, cloud)
    with ledger.lock(RUN):
        reap_all(world)
    assert (cloud.there, cloud.leftovers) == ((), (VOLUME,)), "what else the run has is for whoever holds the lock"


def test_a_run_that_changed_since_it_was_shown_is_left_alone(ledger: SqliteLedger) -> None:
    """The user agreed to something else."""
    cloud = FakeProvider(there=(MACHINE,))
    world = make_world(ledger, cloud)
    (reaping,) = survey_provider(world, everyone=False).reapings
    start_training(ledger)
    with pytest.raises(ConflictError, match="since it was looked at"):
        reap(world, reaping, ignore_messages)
    assert cloud.there == (MACHINE,)


def test_the_ledger_entry_of_a_lost_machine_is_closed(ledger: SqliteLedger) -> None:
    """The meter stops, and the run can be resumed."""
    start_training(ledger)
    reap_all(make_world(ledger, FakeProvider()))
    assert ledger.machines(live_only=True) == ()
    assert [run.run_id for run in ledger.runs(live_only=True)] == [RUN]


def test_the_remaining_resources_of_a_closed_run_are_released(ledger: SqliteLedger) -> None:
    """A second survey finds nothing more."""
    ledger.end_run(RUN, NOW)
    cloud = FakeProvider(leftovers=(VOLUME,))
    world = make_world(ledger, cloud)
    reap_all(world)
    assert cloud.leftovers == ()
    assert survey_provider(world, everyone=False).reapings == ()


def test_another_computers_machine_is_ended_by_its_marks(tmp_path: Path) -> None:
    """This ledger has no record of it: its marks show its deadline and its resources."""
    ledger = SqliteLedger(tmp_path, SystemClock())
    living = replace(MACHINE, id="other-1-m1", run_id="other-1")
    cloud = FakeProvider(there=(LATE, living), leftovers=(VOLUME,))
    world = make_world(ledger, cloud)
    reap_all(world, everyone=False)
    assert cloud.there == (LATE, living)
    reap_all(world, everyone=True)
    assert list(cloud.there) == [living]
    assert cloud.released == [RUN]
    assert (ledger.runs(), ledger.machines()) == ((), ())
    ledger.close()


def test_regions_that_did_not_answer_are_named(ledger: SqliteLedger) -> None:
    """A silent region must not pass for an empty one."""
    start_training(ledger)
    world = make_world(ledger, FakeProvider(there=(MACHINE,), unseen=(SILENT,)))
    assert survey_provider(world, everyone=False).unseen == (SILENT,)
