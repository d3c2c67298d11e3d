"""What remains of a run whose machine can't be created."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from orchestrator.adapters.host.clock import SystemClock
from orchestrator.adapters.ledger.sqlite import SqliteLedger
from orchestrator.core.actions import Action, CreateMachine, StageCode
from orchestrator.core.errors import BadRequestError, KedgeError, NoCapacityError, StillBillingError, UnreachableError
from orchestrator.core.job import Job, LaunchSpec
from orchestrator.core.ledger import RunStage
from orchestrator.core.machine import MachineState
from orchestrator.core.offer import Offer
from orchestrator.core.plan import Plan
from orchestrator.engine.apply import apply
from orchestrator.engine.events import Event, Remark
from tests.support.fakes import MACHINE as READY
from tests.support.fakes import NOW, RUN, FakeProvider, make_world

SPEC = LaunchSpec(run_id=RUN, provider="fake", job=Job(name="digits"))
OFFER = Offer(
    provider="fake",
    region="us-east-1",
    zone="a",
    instance_type="g4dn.xlarge",
    accelerators=None,
    gpu_memory_gib=0,
    cpus=4,
    memory_gib=16,
    disk_gib=100,
    usd_per_hour=Decimal(1),
    disk_usd_per_hour=Decimal(0),
    spot=True,
)
MACHINE = replace(READY, state=MachineState.BOOTING)
CREATE = CreateMachine(machine_id=MACHINE.id, offers=(OFFER,), lifetime=timedelta(hours=1))
STAGE = StageCode(machine_id=MACHINE.id, source="code", files=1, bytes=1, gpus=0)
REFUSALS = (
    NoCapacityError("sold out everywhere"),
    BadRequestError("the image is of another architecture"),
    KedgeError("the credentials have expired"),
)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[SqliteLedger]:
    opened = SqliteLedger(tmp_path, SystemClock())
    yield opened
    opened.close()


def carry_out(
    ledger: SqliteLedger, provider: FakeProvider, *actions: Action, spec: LaunchSpec = SPEC
) -> tuple[KedgeError, list[str]]:
    """Carry out a plan that fails; return its error, and the messages."""
    said: list[str] = []

    def listen(event: Event) -> None:
        if isinstance(event, Remark):
            said.append(event.text)

    with pytest.raises(KedgeError) as caught:
        apply(Plan(run_id=RUN, actions=actions), spec, make_world(ledger, provider), listen)
    return caught.value, said


def stage(ledger: SqliteLedger) -> RunStage:
    """Return the run's stage."""
    record = ledger.run(RUN)
    assert record is not None
    return record.stage


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: type(refusal).__name__)
def test_a_run_that_gets_no_machine_is_closed(ledger: SqliteLedger, refusal: KedgeError) -> None:
    """It leaves nothing anywhere; the user sees the refusal."""
    error, said = carry_out(ledger, FakeProvider(lambda _order: refusal), CREATE)
    assert type(error) is type(refusal)
    assert stage(ledger) is RunStage.ENDED
    assert said[-1] == f"nothing was rented, and run {RUN} is closed"
    assert ledger.open_intents(RUN) == ()


def test_a_plan_with_prices_of_a_snapshot_rents_nothing(ledger: SqliteLedger) -> None:
    """Also in a recovery: no request is sent, and nothing is recorded."""
    provider = FakeProvider()
    error, _ = carry_out(ledger, provider, replace(CREATE, offers=(OFFER, replace(OFFER, live=False))))
    assert isinstance(error, UnreachableError)
    assert provider.orders == []
    assert ledger.run(RUN) is None


def test_a_run_whose_code_can_not_be_staged_is_closed(ledger: SqliteLedger) -> None:
    """No machine was even requested."""
    provider = FakeProvider()
    carry_out(ledger, provider, STAGE, CREATE)
    assert provider.orders == []
    assert stage(ledger) is RunStage.ENDED


def test_who_asked_for_recovery_is_told_that_there_is_nothing_to_recover(ledger: SqliteLedger) -> None:
    """Recovery replaces machines that a run has had; this one has had none."""
    provider = FakeProvider(lambda _order: REFUSALS[0])
    _, said = carry_out(ledger, provider, CREATE, spec=replace(SPEC, recover=True))
    assert said[-1].endswith("is closed; --recover only replaces a lost machine, so launch it again")


def test_a_creation_of_unclear_outcome_leaves_the_run_live(ledger: SqliteLedger) -> None:
    """A machine may exist: `status` and `teardown` search for it."""
    carry_out(ledger, FakeProvider(lambda _order: StillBillingError("no answer")), CREATE)
    assert stage(ledger) is RunStage.LIVE
    assert [intent.subject for intent in ledger.open_intents(RUN)] == [MACHINE.id]


def test_a_machine_that_exists_despite_the_error_keeps_its_run_live(ledger: SqliteLedger) -> None:
    """The search comes before the run is closed, and the machine is then in the ledger."""
    provider = FakeProvider(lambda _order: KedgeError("half made"), there=(MACHINE,))
    _, said = carry_out(ledger, provider, CREATE)
    assert stage(ledger) is RunStage.LIVE
    assert ledger.machines(RUN, live_only=True) == (MACHINE,)
    assert "is not closed yet" in said[-1]


def test_a_live_run_that_has_lost_its_machine_stays_live(ledger: SqliteLedger) -> None:
    """It has checkpoints to resume from: the next recovery tries again."""
    ledger.open_run(SPEC, NOW)
    carry_out(ledger, FakeProvider(lambda _order: REFUSALS[0]), CREATE)
    assert stage(ledger) is RunStage.LIVE


def test_an_ended_run_stays_ended_if_a_resume_is_refused(ledger: SqliteLedger) -> None:
    """A resume that gets no machine changes nothing."""
    ledger.open_run(SPEC, NOW)
    ledger.end_run(RUN, NOW)
    carry_out(ledger, FakeProvider(lambda _order: REFUSALS[0]), CREATE)
    assert stage(ledger) is RunStage.ENDED


def test_changes_of_a_live_run_are_recorded_though_no_machine_is_made(ledger: SqliteLedger) -> None:
    """`resume --no-recover` of a running run has nothing else to do."""
    ledger.open_run(replace(SPEC, recover=True), NOW)
    apply(Plan(run_id=RUN, actions=()), SPEC, make_world(ledger, FakeProvider()), lambda _event: None)
    record = ledger.run(RUN)
    assert record is not None
    assert not record.spec.recover


def test_a_fetch_does_not_reopen_an_ended_run(ledger: SqliteLedger) -> None:
    """A plan that starts nothing, such as a late fetch, leaves it closed."""
    ledger.open_run(replace(SPEC, recover=True), NOW)
    ledger.end_run(RUN, NOW)
    apply(Plan(run_id=RUN, actions=()), SPEC, make_world(ledger, FakeProvider()), lambda _event: None)
    assert stage(ledger) is RunStage.ENDED
