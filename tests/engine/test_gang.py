"""Machines that are rented together: all or none, whatever is refused."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import msgspec
import pytest

from orchestrator.app.launch.launching import observe_and_plan
from orchestrator.app.launch.recovering import is_lost
from orchestrator.core.actions import CreateMachine, DestroyMachine, StartCommand
from orchestrator.core.errors import KedgeError, NoCapacityError, OverBudgetError, StillBillingError, UnfitMachineError
from orchestrator.core.ledger import IntentState, RunStage
from orchestrator.core.machine import EndedBy, Machine, MachineEnd, MachineOrder
from orchestrator.core.protocol.report import Command, RunState
from orchestrator.engine.observing.reconcile import note_outcome
from tests.support.fake_cloud.gangs import HERE, JOB, RUN, SPEC, THERE, Desk, ids, ignore, refuse


def test_all_machines_come_from_one_offer_and_have_one_deadline(desk: Desk) -> None:
    """Each has an intent of its own, its rank, and what is left of the head's lifetime."""
    assert desk.launch().finished
    machines = desk.ledger.machines(RUN)
    assert [(each.id, each.rank) for each in machines] == list(zip(ids(1, 2, 3), range(3), strict=True))
    assert {order.zone for order in desk.cloud.orders} == {HERE}
    assert len({each.deadline_at for each in machines}) == 1
    assert [order.lifetime_seconds for order in desk.cloud.orders] == [3600, 3540, 3480]
    created = [each for each in desk.ledger.intents(RUN) if each.kind == CreateMachine.__name__]
    assert [each.subject for each in created] == ids(1, 2, 3)
    payloads = [msgspec.json.decode(each.payload, type=CreateMachine) for each in created]
    assert [(each.rank, each.others) for each in payloads] == [(0, ()), (1, ()), (2, ())]
    assert set(desk.cloud.states.values()) == {"running"}


@pytest.mark.parametrize("number", [1, 2, 3])
def test_if_one_is_refused_none_is_left_and_the_next_offer_is_tried_for_all(desk: Desk, number: int) -> None:
    """Whichever it is. All ends are requested before one is waited for, and before anything else is rented."""
    refuse(desk.cloud, number, HERE)
    assert desk.launch().finished
    first = 1 if number == 1 else number + 1
    wanted = ids(*range(first, first + 3))
    assert desk.live() == desk.cloud.names() == wanted
    assert {order.zone for order in desk.cloud.orders[number:]} == {THERE}
    made = ids(*range(1, number))
    between = desk.cloud.requests[number : number + 2 * len(made)]
    assert between == [*(f"destroy {name}" for name in made), *(f"gone {name}" for name in made)]
    said = [] if number == 1 else [f"fake/earth/here big has {number - 1} of 3 machines (sold out)"]
    assert [line.partition(":")[0] for line in desk.said] == said


@pytest.mark.parametrize("number", [1, 2, 3])
def test_without_room_for_all_anywhere_nothing_is_left(desk: Desk, number: int) -> None:
    """The error names why; no intent stays open."""
    desk.cloud.zones = (HERE,)
    refuse(desk.cloud, number, HERE)
    with pytest.raises(NoCapacityError):
        desk.launch()
    assert (desk.cloud.there, desk.live()) == ((), [])
    assert desk.ledger.open_intents(RUN) == ()


def test_a_refused_quota_rules_out_other_offers_too(desk: Desk) -> None:
    """A refusal that covers another offer isn't followed by that offer."""
    desk.cloud.refuse = lambda order: (
        NoCapacityError("quota", covers=lambda _other: True) if order.id.endswith("m2") else None
    )
    with pytest.raises(NoCapacityError, match="no other offer"):
        desk.launch()
    assert {order.zone for order in desk.cloud.orders} == {HERE}
    assert desk.cloud.there == ()


def test_an_unclear_creation_ends_the_others_and_stays_open(desk: Desk) -> None:
    """No other offer is tried: the unclear one may exist, and the next command finds out."""
    refuse(desk.cloud, 2, HERE, StillBillingError)
    with pytest.raises(StillBillingError):
        desk.launch()
    assert (desk.cloud.there, desk.live()) == ((), [])
    assert [intent.subject for intent in desk.ledger.open_intents(RUN)] == ids(2)
    assert {order.zone for order in desk.cloud.orders} == {HERE}


@pytest.mark.parametrize("number", [1, 2, 3])
def test_if_one_never_boots_none_is_left_and_the_next_offer_is_tried(desk: Desk, number: int) -> None:
    """After the time for a boot, all are ended; the machines of the next offer boot."""
    desk.cloud.dead = {f"{RUN}-m{number}"}
    assert desk.launch().finished
    assert desk.live() == desk.cloud.names() == ids(4, 5, 6)
    assert [order.zone for order in desk.cloud.orders] == [HERE] * 3 + [THERE] * 3
    (said,) = desk.said
    assert said.startswith(f"machine {RUN}-m{number} has not booted")
    assert "3 machines were ended" in said
    started = [each.subject for each in desk.ledger.intents(RUN) if each.kind == StartCommand.__name__]
    assert started == ids(4, 5, 6)


def test_what_unfit_machines_have_cost_counts_in_the_budget(desk: Desk) -> None:
    """Three machines that have waited for half an hour leave too little for three others."""
    desk.cloud.dead = set(ids(2))
    with pytest.raises(OverBudgetError):
        desk.launch(replace(SPEC, job=msgspec.structs.replace(JOB, budget_usd=Decimal("6.10"))))
    assert (desk.cloud.there, desk.live()) == ((), [])


def test_a_gang_of_which_somebody_ended_a_machine_is_not_recovered(desk: Desk) -> None:
    """Whoever did that wants no other one."""
    spec = replace(SPEC, recover=True, until=desk.clock.now() + timedelta(hours=1))
    desk.launch(spec)
    desk.cloud.ends[f"{RUN}-m3"] = MachineEnd(by=EndedBy.SOMEBODY, says="console")
    desk.cloud.lose(f"{RUN}-m3")
    assert not is_lost(desk, desk.named_run(RUN), desk.said.append)


def test_a_resumed_gang_starts_where_nothing_runs(desk: Desk) -> None:
    """A launch that was killed between two starts is completed on the same machines."""
    desk.launch()
    del desk.cloud.states[f"{RUN}-m2"]
    plan = observe_and_plan(desk, SPEC, follow=False)
    assert [(type(each), getattr(each, "machine_id", "")) for each in plan.actions] == [(StartCommand, f"{RUN}-m2")]


def test_the_state_of_the_run_is_the_heads(desk: Desk) -> None:
    """Whatever the others report."""
    desk.launch()
    desk.cloud.states |= {f"{RUN}-m2": "failed", f"{RUN}-m3": "succeeded"}
    record = desk.ledger.run(RUN)
    assert record is not None
    assert record.outcome == "running"
    plan = observe_and_plan(desk, SPEC, follow=False)
    assert [getattr(each, "machine_id", "") for each in plan.actions] == ids(2)


def test_a_teardown_asks_for_all_ends_before_it_waits_for_one(desk: Desk) -> None:
    """Each machine bills until then."""
    desk.launch()
    desk.cloud.requests.clear()
    desk.tear_down()
    assert desk.cloud.requests[3:6] == [f"destroy {name}" for name in ids(1, 2, 3)]
    record = desk.ledger.run(RUN)
    assert record is not None
    assert record.stage is RunStage.ENDED


def test_an_end_that_is_refused_does_not_keep_the_others(desk: Desk) -> None:
    """The others are gone, and only its intent has failed."""
    desk.launch()
    destroy = desk.cloud.destroy

    def destroy_some(machine_id: str) -> None:
        if machine_id.endswith("m2"):
            raise KedgeError("not now")
        destroy(machine_id)

    desk.cloud.destroy = destroy_some  # type: ignore[method-assign]
    with pytest.raises(KedgeError, match="not now"):
        desk.tear_down()
    assert desk.live() == desk.cloud.names() == ids(2)
    ends = {each.subject: each.state for each in desk.ledger.intents(RUN) if each.kind == DestroyMachine.__name__}
    assert [ends[name] for name in ids(1, 2, 3)] == [IntentState.DONE, IntentState.FAILED, IntentState.DONE]


def test_an_unfit_machine_of_a_gang_is_named(desk: Desk) -> None:
    """A machine that the provider couldn't start ends all, as one that never boots does."""
    desk.cloud.dead = set(ids(3))
    desk.cloud.ends[f"{RUN}-m3"] = MachineEnd(by=EndedBy.START, says="Client.InternalError")
    create = desk.cloud.create

    def create_and_lose(order: MachineOrder) -> Machine:
        made = create(order)
        if order.id.endswith("m3"):
            desk.cloud.lose(order.id)
        return made

    desk.cloud.create = create_and_lose  # type: ignore[method-assign]
    with pytest.raises(UnfitMachineError, match="m3 could not be started"):
        desk.apply(SPEC, observe_and_plan(desk, SPEC, follow=False), ignore)
    assert (desk.cloud.there, desk.live()) == ((), [])


def test_a_run_takes_as_long_as_its_head_lives(desk: Desk) -> None:
    """Three machines for an hour are an hour: later plans compare it with their deadline."""
    desk.launch()
    desk.cloud.clock.time += timedelta(minutes=10)
    note_outcome(desk.world("fake"), RUN, Command(state=RunState.SUCCEEDED))
    head = desk.ledger.machines(RUN)[0]
    assert set(desk.ledger.usual_durations(SPEC.job).values()) == {desk.clock.now() - head.created_at}
