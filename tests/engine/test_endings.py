"""What happens to a run whose machine is gone; it depends on who ended the machine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.adapters.host.clock import SystemClock
from orchestrator.adapters.ledger.sqlite import SqliteLedger
from orchestrator.core.actions import DestroyMachine
from orchestrator.core.errors import KedgeError
from orchestrator.core.job import AtEnd, Job, LaunchSpec, Resources, VolumeSpec
from orchestrator.core.ledger import IntentState, RunStage
from orchestrator.core.machine import EndedBy, MachineEnd, MachineState
from orchestrator.core.task import Task
from orchestrator.engine.observing.reconcile import find_last_loss, reconcile
from tests.support.fakes import M1, MACHINE, NOW, RUN, FakeProvider, make_world

SPEC = LaunchSpec(run_id=RUN, provider="fake", job=Job(name="digits", tasks=(Task(run="train"),)))


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[SqliteLedger]:
    """The ledger of a laptop with one run and its machine."""
    opened = SqliteLedger(tmp_path, SystemClock())
    opened.open_run(SPEC, NOW)
    opened.put_machine(MACHINE)
    yield opened
    opened.close()


def gone(by: EndedBy) -> FakeProvider:
    """Make a provider whose machine is gone, and which reports who ended it."""
    return FakeProvider(ends={M1: MachineEnd(by=by, says="in its own words")})


def stage(ledger: SqliteLedger) -> RunStage:
    """Return the run's stage."""
    record = ledger.run(RUN)
    assert record is not None
    return record.stage


@pytest.mark.parametrize(
    ("by", "says"),
    [
        (EndedBy.PROVIDER, "fake took it away"),
        (EndedBy.ITSELF, "it ended by itself"),
        (EndedBy.DEADLINE, "its deadline had passed"),
    ],
    ids=["the provider", "itself", "its deadline"],
)
def test_who_ended_a_machine_is_reported_and_recorded(ledger: SqliteLedger, by: EndedBy, says: str) -> None:
    """The provider's own record disappears; the run can be resumed."""
    (finding,) = reconcile(make_world(ledger, gone(by)), RUN)
    assert finding == f"machine {M1} is gone: {says} (in its own words)"
    (machine,) = ledger.machines(RUN)
    assert machine.end == MachineEnd(by=by, says="in its own words")
    assert ledger.machines(RUN, live_only=True) == ()
    assert stage(ledger) is RunStage.LIVE


def test_a_run_whose_machine_somebody_ended_is_closed(ledger: SqliteLedger) -> None:
    """They wanted its end; the ledger has its outcome from then on."""
    found = reconcile(make_world(ledger, gone(EndedBy.SOMEBODY)), RUN)
    assert found[0] == f"machine {M1} is gone: somebody ended it at fake (in its own words)"
    assert found[-1] == f"run {RUN} is closed: somebody ended its machine at fake"
    record = ledger.run(RUN)
    assert record is not None
    assert (record.stage, record.outcome) == (RunStage.ENDED, "stopped")


def test_a_run_whose_volumes_would_be_deleted_is_not_closed_by_looking(ledger: SqliteLedger) -> None:
    """Reading commands neither delete nor copy data: a teardown does."""
    volume = VolumeSpec(name="numbers", target="keep", size_gib=1, at_end=AtEnd.DELETE)
    job = Job(name="digits", tasks=(Task(run="train"),), resources=Resources(volumes=(volume,)))
    ledger.open_run(LaunchSpec(run_id=RUN, provider="fake", job=job), NOW)
    found = reconcile(make_world(ledger, gone(EndedBy.SOMEBODY)), RUN)
    assert "`kedge teardown digits-1`" in found[-1]
    assert stage(ledger) is RunStage.LIVE


def test_a_machine_that_an_interrupted_command_ended_counts_as_ended_by_kedge(ledger: SqliteLedger) -> None:
    """To the provider, kedge's own call looks like anybody's."""
    ledger.intend(RUN, DestroyMachine(machine_id=M1), NOW)
    found = reconcile(make_world(ledger, gone(EndedBy.SOMEBODY)), RUN)
    assert found[-1] == f"machine {M1} is gone: an interrupted command had requested its end"
    assert stage(ledger) is RunStage.LIVE


def test_a_lost_machine_is_settled_even_if_its_provider_gives_no_reason(ledger: SqliteLedger) -> None:
    """It only matters that it is gone."""
    provider = FakeProvider(unexplained=KedgeError("no answer"))
    assert reconcile(make_world(ledger, provider), RUN) == (f"machine {M1} is gone; it ended without a kedge command",)
    assert ledger.machines(RUN, live_only=True) == ()
    assert stage(ledger) is RunStage.LIVE


def taken_away(by: EndedBy = EndedBy.PROVIDER) -> FakeProvider:
    """Make a provider that shows the machine as shutting down, and why."""
    machine = replace(MACHINE, state=MachineState.ENDING)
    return FakeProvider(there=(machine,), ends={M1: MachineEnd(by=by, says="in its own words")})


def test_a_machine_that_is_taken_away_is_reported_while_it_shuts_down(ledger: SqliteLedger) -> None:
    """Once, and what was recorded then outlives the request that ends it for good."""
    world = make_world(ledger, provider := taken_away())
    assert reconcile(world, RUN) == (f"machine {M1} is ending: fake took it away (in its own words)",)
    assert find_last_loss(world, RUN) == f"machine {M1} is ending: fake took it away (in its own words)"
    assert reconcile(world, RUN) == ()
    ledger.close_intent(ledger.intend(RUN, DestroyMachine(machine_id=M1), NOW), IntentState.DONE, NOW, "")
    provider.there = ()
    assert reconcile(world, RUN) == (f"machine {M1} is gone: fake took it away (in its own words)",)
    assert ledger.machines(RUN)[0].end == provider.ends[M1]


@pytest.mark.parametrize("by", [by for by in EndedBy if by is not EndedBy.PROVIDER])
def test_a_machine_that_ends_for_another_reason_is_reported_when_it_is_gone(ledger: SqliteLedger, by: EndedBy) -> None:
    """One that is only switched off may be switched on again."""
    world = make_world(ledger, taken_away(by))
    assert reconcile(world, RUN) == ()
    assert find_last_loss(world, RUN) == ""
