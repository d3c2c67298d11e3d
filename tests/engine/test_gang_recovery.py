"""Machines of several that are lost: only they are replaced, and all start together; or all are rented elsewhere."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import msgspec
import pytest

from orchestrator.app.launch.launching import observe_and_plan
from orchestrator.app.launch.recovering import is_lost
from orchestrator.core.actions import CreateMachine, DestroyMachine
from orchestrator.core.errors import NoCapacityError, OverBudgetError, StillBillingError
from orchestrator.core.job import Job, LaunchSpec
from orchestrator.core.machine import EndedBy, MachineEnd, newest_gang
from orchestrator.core.protocol.report import Command, RunState
from orchestrator.engine.observing.observe import ask_machines
from orchestrator.engine.steps.follow import MachineLostError
from orchestrator.engine.steps.gang import GangWatch
from tests.support.fake_cloud.gangs import HERE, JOB, RUN, SPEC, THERE, Desk, ids, refuse


def recovered(desk: Desk, job: Job = JOB) -> LaunchSpec:
    """Launch a run that is recovered."""
    spec = replace(SPEC, job=job, recover=True, until=desk.clock.now() + timedelta(hours=1))
    desk.launch(spec)
    assert not is_lost(desk, desk.named_run(RUN), desk.said.append)
    desk.cloud.requests.clear()
    desk.cloud.orders.clear()
    return spec


def lose(desk: Desk, *numbers: int) -> None:
    """Let the provider take machines away."""
    for name in ids(*numbers):
        desk.cloud.ends[name] = MachineEnd(by=EndedBy.PROVIDER, says="spot")
        desk.cloud.lose(name)
    assert is_lost(desk, desk.named_run(RUN), desk.said.append)


def each(verb: str, *numbers: int) -> list[str]:
    return [f"{verb} {name}" for name in ids(*numbers)]


@pytest.mark.parametrize("lost", [(1,), (2,), (1, 3)])
def test_only_lost_machines_are_replaced(desk: Desk, lost: tuple[int, ...]) -> None:
    """The others are stopped once the new ones are ready, and all start together, the new ones last."""
    spec = recovered(desk)
    until = desk.ledger.machines(RUN)[0].deadline_at
    lose(desk, *lost)
    desk.launch(spec)
    left, new = sorted({1, 2, 3} - set(lost)), range(4, 4 + len(lost))
    assert desk.cloud.requests == [*each("create", *new), *each("stop", *left), *each("start", *left, *new)]
    assert desk.cloud.wanted[-1] == len(lost)
    assert desk.live() == desk.cloud.names() == ids(*left, *new)
    assert [(order.rank, order.zone) for order in desk.cloud.orders] == [(number - 1, HERE) for number in lost]
    assert {order.num_nodes for order in desk.cloud.orders} == {3}
    gang = newest_gang(desk.ledger.machines(RUN))
    assert [machine.rank for machine in gang] == [0, 1, 2]
    assert {machine.id for machine in gang} == set(ids(*left, *new))
    assert max(machine.deadline_at for machine in gang) - until < timedelta(minutes=len(lost))
    assert not is_lost(desk, desk.named_run(RUN), desk.said.append)
    assert observe_and_plan(desk, spec, follow=False).actions == ()


def test_without_room_for_the_lost_machine_all_are_rented_elsewhere(desk: Desk) -> None:
    """Those that are left are stopped, and their results fetched, before they are ended."""
    spec = recovered(desk)
    lose(desk, 2)
    refuse(desk.cloud, 1, HERE)
    desk.launch(spec)
    assert desk.said[-1].startswith("fake/earth/here big has no more machines (sold out): nothing was rented; another")
    assert desk.cloud.requests[:5] == [*each("create", 4), *each("stop", 1, 3), *each("destroy", 1, 3)]
    assert desk.live() == desk.cloud.names() == ids(5, 6, 7)
    assert {order.zone for order in desk.cloud.orders[1:]} == {THERE}


def test_a_replacement_that_never_boots_is_ended_and_all_are_rented_elsewhere(desk: Desk) -> None:
    """The machines that are left keep their results until these are fetched."""
    spec = recovered(desk, msgspec.structs.replace(JOB, time_limit=timedelta(hours=2)))
    spec = replace(spec, until=None)
    lose(desk, 2)
    desk.cloud.dead = set(ids(4))
    desk.launch(spec)
    assert desk.cloud.requests[:5] == [*each("create", 4), *each("destroy", 4), *each("gone", 4), *each("stop", 1, 3)]
    assert desk.live() == desk.cloud.names() == ids(5, 6, 7)


def test_of_two_replacements_none_is_left_if_one_is_refused(desk: Desk) -> None:
    """Nothing else is for sale either: the machine that is left stays as it was."""
    spec = recovered(desk)
    lose(desk, 2, 3)
    desk.cloud.zones = (HERE,)
    refuse(desk.cloud, 2, HERE)
    with pytest.raises(NoCapacityError, match="no other offer"):
        desk.launch(spec)
    assert desk.cloud.requests == [*each("create", 4, 5), *each("destroy", 4), *each("gone", 4)]
    assert desk.live() == desk.cloud.names() == ids(1)
    assert desk.ledger.open_intents(RUN) == ()


def test_an_unclear_replacement_stays_open_and_the_others_stay(desk: Desk) -> None:
    """The unclear machine may exist; the next command finds out."""
    spec = recovered(desk)
    lose(desk, 2)
    refuse(desk.cloud, 1, HERE, StillBillingError)
    with pytest.raises(StillBillingError):
        desk.launch(spec)
    assert desk.live() == desk.cloud.names() == ids(1, 3)
    assert [intent.subject for intent in desk.ledger.open_intents(RUN)] == ids(4)


def test_what_all_machines_have_cost_counts_when_one_is_replaced(desk: Desk) -> None:
    """Three machines for an hour cost $6; nothing more is paid, because the lost one costs nothing any more."""
    spec = recovered(desk, msgspec.structs.replace(JOB, budget_usd=Decimal("6.10")))
    desk.cloud.clock.time += timedelta(minutes=20)
    lose(desk, 2)
    plan = observe_and_plan(desk, spec, follow=False)
    assert plan.usd_per_hour == Decimal(6)
    assert Decimal("5.80") <= plan.worst_usd <= Decimal("6.10")
    with pytest.raises(OverBudgetError):
        observe_and_plan(desk, replace(spec, job=msgspec.structs.replace(JOB, budget_usd=Decimal(5))), follow=False)


def test_machines_that_are_about_to_end_are_not_completed(desk: Desk) -> None:
    """All are rented again, with a deadline of their own."""
    recovered(desk)
    lose(desk, 2)
    desk.cloud.clock.time += timedelta(minutes=56)
    plan = observe_and_plan(desk, SPEC, follow=False)
    assert [each.machine_id for each in plan.actions if isinstance(each, DestroyMachine)] == ids(1, 3)
    (creation,) = [each for each in plan.actions if isinstance(each, CreateMachine)]
    assert (creation.lifetime, len(creation.machine_ids)) == (timedelta(hours=1), 3)


@pytest.mark.parametrize("by", [EndedBy.PROVIDER, EndedBy.SOMEBODY])
def test_who_follows_the_head_notices_the_loss_of_another_machine(desk: Desk, by: EndedBy) -> None:
    """Unless somebody ended that machine; one that was missing before, as an elastic run may, isn't lost again."""
    spec = recovered(desk)
    world = desk.world("fake")
    (head,) = [report for report in ask_machines(world, desk.cloud.there, 3) if report.machine == f"{RUN}-m1"]
    watch = GangWatch(world, spec)
    watch.look(head)
    desk.cloud.ends[f"{RUN}-m3"] = MachineEnd(by=by, says="bye")
    desk.cloud.lose(f"{RUN}-m3")
    watch.look(head)
    desk.cloud.clock.time += timedelta(seconds=31)
    watch.look(msgspec.structs.replace(head, command=Command(state=RunState.SUCCEEDED)))
    if by is EndedBy.SOMEBODY:
        watch.look(head)
        return
    with pytest.raises(MachineLostError, match="m3 is gone") as caught:
        watch.look(head)
    assert caught.value.is_other
    again = GangWatch(world, spec)
    for _ in range(2):
        again.look(head)
        desk.cloud.clock.time += timedelta(seconds=31)


def test_a_head_that_has_failed_because_it_lost_a_machine_is_recovered(desk: Desk) -> None:
    """Its machine is still there: only the lost one is rented."""
    spec = recovered(desk)
    desk.cloud.states[f"{RUN}-m1"] = "failed"
    desk.cloud.reasons[f"{RUN}-m1"] = "lost a machine: node 1 (192.0.2.2) did not come"
    lose(desk, 2)
    desk.launch(spec)
    assert desk.cloud.requests == [*each("create", 4), *each("stop", 3), *each("start", 1, 3, 4)]


def test_an_elastic_run_goes_on_without_the_lost_machine_if_there_is_no_other(desk: Desk) -> None:
    """Nothing of it is stopped. Without its head it can't go on."""
    spec = recovered(desk, msgspec.structs.replace(JOB, elastic=(2, 3)))
    lose(desk, 3)
    refuse(desk.cloud, 1, HERE)
    desk.launch(spec)
    assert desk.cloud.requests == each("create", 4)
    assert desk.live() == desk.cloud.names() == ids(1, 2)
    lose(desk, 1)
    desk.launch(spec)
    assert desk.live() == desk.cloud.names() == ids(2, 5, 6)


def test_an_elastic_run_starts_its_machines_together(desk: Desk) -> None:
    """The head of a group that trains admits no other machine."""
    spec = recovered(desk, msgspec.structs.replace(JOB, elastic=(1, 3)))
    del desk.cloud.states[f"{RUN}-m3"]
    desk.launch(spec)
    assert desk.cloud.requests == [*each("stop", 1, 2), *each("start", 1, 2, 3)]
