"""Several machines of a run under kills, teardowns and ends in a console: nothing is rented that nobody wants."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from itertools import takewhile
from pathlib import Path

import msgspec
import pytest

from orchestrator.adapters.store.folder import FolderBucket
from orchestrator.adapters.store.results import Results
from orchestrator.app.launch.launching import observe_and_plan
from orchestrator.app.launch.recovering import apply_until_done, is_lost
from orchestrator.core.actions import AwaitMachine, CreateMachine, FollowCommand, StartCommand
from orchestrator.core.errors import BadRequestError, ConflictError, UnfitMachineError, UnreachableError
from orchestrator.core.job import LaunchSpec
from orchestrator.core.ledger import RunStage
from orchestrator.core.machine import EndedBy, Machine, MachineEnd
from orchestrator.core.plan import Plan
from orchestrator.core.ports import Completed
from orchestrator.core.protocol.report import Command, RunState
from orchestrator.core.task import Nodes, Task
from orchestrator.core.values.cost import spent_usd
from orchestrator.engine.journal import journaled
from orchestrator.engine.observing.observe import ask_machines
from orchestrator.engine.reap import read_history, survey_provider
from orchestrator.engine.run_progress import RunProgress
from orchestrator.engine.steps.follow import MachineLostError
from orchestrator.engine.steps.gang import GangWatch
from tests.support.fake_cloud.gangs import (
    HERE,
    JOB,
    RUN,
    SPEC,
    THERE,
    Agent,
    CrashingLedger,
    Desk,
    Killed,
    ids,
    ignore,
    refuse,
)
from tests.support.orders import make_offer

LOST = Command(state=RunState.FAILED, reason="lost a machine: node 1 (192.0.2.2) did not come")


def recovered_spec(desk: Desk, **changes: object) -> LaunchSpec:
    job = msgspec.structs.replace(JOB, **changes)
    return replace(SPEC, job=job, recover=True, until=desk.clock.now() + timedelta(hours=1))


def follow(desk: Desk, spec: LaunchSpec, ended: Callable[[], Command]) -> RunProgress:
    """Do what `kedge launch --recover` does; the followed command ends as `ended` says."""
    plan = observe_and_plan(desk, spec, follow=False)

    def apply_plan(plan: Plan) -> RunProgress:
        until_started = takewhile(lambda action: not isinstance(action, FollowCommand), plan.actions)
        progress = desk.apply(spec, replace(plan, actions=tuple(until_started), ends=False), ignore)
        progress.command = ended()
        return progress

    return apply_until_done(desk, spec, plan, apply_plan, desk.said.append)


def test_a_torn_down_run_is_not_rented_again_by_the_launch_that_waits_for_capacity(desk: Desk) -> None:
    """The other terminal has ended the run meanwhile."""
    spec = recovered_spec(desk)
    desk.cloud.zones = (HERE,)
    ends = iter([LOST, Command(state=RunState.SUCCEEDED)])

    def lose_and_sell_out() -> Command:
        command = next(ends)
        if command is LOST:
            for name in ids(1, 2, 3):
                desk.cloud.ends[name] = MachineEnd(by=EndedBy.PROVIDER, says="spot")
                desk.cloud.lose(name)
            desk.cloud.zones = ()
        return command

    sleep = desk.clock.sleep

    def tear_down_meanwhile(pause: timedelta) -> None:
        sleep(pause)
        if desk.cloud.zones:
            return
        record = desk.named_run(RUN)
        desk.ledger.open_run(replace(record.spec, recover=False), desk.clock.now())
        desk.tear_down()
        desk.cloud.zones = (HERE,)

    desk.clock.sleep = tear_down_meanwhile  # type: ignore[method-assign,assignment]
    with pytest.raises(ConflictError, match="gets no other machine"):
        follow(desk, spec, lose_and_sell_out)
    assert desk.cloud.names() == []
    assert desk.named_run(RUN).stage is RunStage.ENDED


def test_a_machine_that_somebody_ended_is_not_replaced_when_the_head_gives_up(desk: Desk) -> None:
    """The head has waited for it in vain; whoever ended it wants no other one."""
    spec = recovered_spec(desk)
    ends = iter([LOST, Command(state=RunState.SUCCEEDED)])

    def end_in_console() -> Command:
        command = next(ends)
        desk.cloud.ends[f"{RUN}-m2"] = MachineEnd(by=EndedBy.SOMEBODY, says="console")
        desk.cloud.lose(f"{RUN}-m2")
        desk.cloud.states[f"{RUN}-m1"] = "failed"
        desk.cloud.reasons[f"{RUN}-m1"] = LOST.reason
        return command

    follow(desk, spec, end_in_console)
    assert len(desk.cloud.orders) == 3


def test_machines_on_which_nothing_is_to_run_are_neither_lost_nor_reaped(desk: Desk) -> None:
    """All tasks of the job run on the head only."""
    tasks = (Task(name="train", run="train", nodes=Nodes.HEAD),)
    spec = recovered_spec(desk, tasks=tasks)
    desk.launch(spec)
    assert not is_lost(desk, desk.named_run(RUN), desk.said.append)
    survey = survey_provider(desk.world("fake"), everyone=False)
    assert [each.what for reaping in survey.reapings for each in reaping.findings] == []


@pytest.mark.parametrize("number", [3, 12, 17, 18])
def test_a_machine_that_has_trained_is_never_ended_as_one_that_has_not_booted(desk: Desk, number: int) -> None:
    """Whenever the launch was killed: it was resumed, it has trained, and then a replacement is refused."""
    spec = recovered_spec(desk)
    whole = desk.ledger
    desk.__dict__["ledger"] = CrashingLedger(whole, "before", number)
    with suppress(Killed):
        desk.launch(spec)
    desk.__dict__["ledger"] = whole
    if desk.ledger.run(RUN) is not None:
        desk.reconcile(desk.named_run(RUN))
    desk.launch(spec)
    *left, gone = desk.live()
    desk.cloud.ends[gone] = MachineEnd(by=EndedBy.PROVIDER, says="spot")
    desk.cloud.lose(gone)
    assert is_lost(desk, desk.named_run(RUN), desk.said.append)
    refuse(desk.cloud, 1, HERE)
    desk.cloud.requests.clear()
    with pytest.raises(UnfitMachineError):
        desk.apply(spec, observe_and_plan(desk, spec, follow=False), ignore)
    assert [each for each in desk.cloud.requests if each.startswith("destroy")] == []
    assert desk.cloud.names() == left


def test_a_machine_whose_tasks_have_all_succeeded_is_of_use(desk: Desk) -> None:
    """It replaces a lost one, and what is left to do runs on the head; without that start its launch has died."""
    tasks = (Task(name="train", run="train"), Task(name="export", run="export", nodes=Nodes.HEAD))
    spec = recovered_spec(desk, tasks=tasks)
    desk.launch(spec)
    new = f"{RUN}-m4"
    creation = CreateMachine(
        machine_id=new, offers=(make_offer("fake", "big", "earth"),), lifetime=timedelta(hours=1), rank=1
    )
    for action in (creation, AwaitMachine(machine_id=new)):
        with journaled(desk.ledger, desk.clock, RUN, action):
            assert new not in read_history(desk.ledger.intents(RUN), spec.job).used
    start = StartCommand(machine_id=f"{RUN}-m1", supervisor=JOB.supervisor.kind, resumes=True, done=("train",))
    assert new not in read_history(desk.ledger.intents(RUN), spec.job).used
    desk.ledger.intend(RUN, start, desk.clock.now())
    assert new in read_history(desk.ledger.intents(RUN), spec.job).used


def plan_elsewhere(desk: Desk, spec: LaunchSpec, *, late: timedelta) -> Plan:
    """Lose the second machine, and plan others in another zone; the end of each that is left takes this long."""
    desk.cloud.ends[f"{RUN}-m2"] = MachineEnd(by=EndedBy.PROVIDER, says="spot")
    desk.cloud.lose(f"{RUN}-m2")
    desk.reconcile(desk.named_run(RUN))
    desk.cloud.zones = (THERE,)
    destroy = desk.cloud.destroy

    def destroy_late(machine_id: str) -> None:
        desk.cloud.clock.time += late
        destroy(machine_id)

    desk.cloud.destroy = destroy_late  # type: ignore[method-assign]
    return observe_and_plan(desk, spec, follow=False)


def test_what_others_cost_while_their_results_are_brought_home_is_within_the_budget(desk: Desk) -> None:
    """The new machines begin later, and end when the plan has said."""
    spec = replace(recovered_spec(desk, budget_usd=Decimal(12)), until=desk.clock.now() + timedelta(hours=2))
    desk.launch(spec)
    plan = plan_elsewhere(desk, spec, late=timedelta(minutes=15))
    desk.apply(spec, plan, ignore)
    machines = desk.ledger.machines(RUN, live_only=True)
    assert [machine.id for machine in machines] == ids(4, 5, 6)
    assert plan.deadline_at is not None
    last = max(machine.deadline_at for machine in machines)
    assert timedelta(0) <= last - plan.deadline_at < timedelta(seconds=1)
    assert spent_usd(desk.ledger.rentals(RUN), plan.deadline_at) <= plan.worst_usd


def test_nothing_is_rented_for_the_last_moments_of_a_run(desk: Desk) -> None:
    """The end of the others has taken all of the time that was left."""
    spec = recovered_spec(desk)
    desk.launch(spec)
    desk.cloud.clock.time += timedelta(minutes=50)
    plan = plan_elsewhere(desk, spec, late=timedelta(minutes=5))
    with pytest.raises(BadRequestError, match="is over"):
        desk.apply(spec, plan, ignore)
    assert (desk.cloud.names(), desk.live()) == ([], [])


def test_a_machine_that_ended_unseen_has_cost_money_until_its_own_last_upload(desk: Desk, tmp_path: Path) -> None:
    """Nobody looked for ten hours; each machine uploads to a place of its own."""
    desk.store = Results(FolderBucket(tmp_path / "store"))
    desk.launch(replace(SPEC, job=msgspec.structs.replace(JOB, time_limit=timedelta(hours=12))))
    last = desk.clock.now() + timedelta(minutes=20)
    for rank, name in enumerate(ids(1, 2, 3)):
        manifest = tmp_path / "store" / RUN / (f"nodes/{rank}" if rank else "") / "manifest.json"
        manifest.parent.mkdir(parents=True)
        manifest.write_text(json.dumps({"time": last.timestamp(), "machine": name, "command": {"state": "running"}}))
        desk.cloud.lose(name)
    desk.clock.sleep(timedelta(hours=10))
    desk.reconcile(desk.named_run(RUN))
    ends = [rental.until for rental in desk.ledger.rentals(RUN)]
    assert ends == [last + timedelta(minutes=10)] * 3


def test_a_machine_that_another_command_has_replaced_is_not_lost(desk: Desk) -> None:
    """`kedge recover` may act on a run that a launch follows."""
    spec = recovered_spec(desk)
    desk.launch(spec)
    world = desk.world("fake")
    (head,) = [each for each in ask_machines(world, desk.cloud.there, 3) if each.machine == f"{RUN}-m1"]
    watch = GangWatch(world, spec)
    watch.look(head)
    desk.cloud.lose(f"{RUN}-m3")
    assert is_lost(desk, desk.named_run(RUN), desk.said.append)
    desk.launch(spec)
    desk.clock.sleep(timedelta(seconds=31))
    watch.look(head)
    desk.cloud.lose(f"{RUN}-m4")
    desk.clock.sleep(timedelta(seconds=31))
    with pytest.raises(MachineLostError, match="m4 is gone"):
        watch.look(head)


def test_machines_that_only_this_computer_can_not_reach_are_not_given_up(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A resume from a network that lets no SSH through ends nothing, rents nothing, and doesn't try for ever."""
    desk.launch()
    created = len(desk.cloud.orders)

    def refuse_to_connect(_self: Agent, *_args: object, **_kwargs: object) -> Completed:
        raise UnreachableError("no route to the machine")

    monkeypatch.setattr(Agent, "run", refuse_to_connect)
    with pytest.raises(UnreachableError, match="has not booted"):
        desk.launch()
    assert len(desk.cloud.orders) == created
    assert desk.live() == desk.cloud.names() == ids(1, 2, 3)


def test_a_provider_that_does_not_answer_for_a_moment_ends_no_boot(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise all machines would be ended, and others rented."""
    failures = iter(range(3))
    describe = desk.cloud.describe

    def describe_later(machine_id: str) -> Machine | None:
        if len(desk.cloud.there) == 3 and next(failures, None) is not None:
            raise UnreachableError("the network is down")
        return describe(machine_id)

    monkeypatch.setattr(desk.cloud, "describe", describe_later)
    desk.launch()
    assert desk.live() == desk.cloud.names() == ids(1, 2, 3)
