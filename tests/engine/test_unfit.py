"""A machine that fails its burn-in is ended, and the next offer is used: a launch with a fake cloud and a fake SSH."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import msgspec
import pytest

from orchestrator.adapters.host.settings import read_settings
from orchestrator.app.launch.launching import observe_and_plan
from orchestrator.app.launch.recovering import apply_replacing_unfit, apply_until_done, is_lost
from orchestrator.app.root import App
from orchestrator.cli.tasks.carry_out import carry_out
from orchestrator.core.actions import AwaitMachine, CreateMachine, DestroyMachine
from orchestrator.core.errors import (
    BadRequestError,
    KedgeError,
    NoCapacityError,
    OverBudgetError,
    StillBillingError,
    UnfitMachineError,
)
from orchestrator.core.job import Job, LaunchSpec
from orchestrator.core.ledger import RunStage
from orchestrator.core.machine import MachineState
from orchestrator.core.plan import Plan
from orchestrator.core.protocol.wire import TORCH_WHEEL
from orchestrator.engine.events import Event
from orchestrator.engine.run_progress import RunProgress
from orchestrator.engine.world import World
from tests.support.clocks import FakeClock
from tests.support.fakes import make_world
from tests.support.gpu_cloud import BROKEN, DEAD, ERROR, FINE, RUN, SORRY, Cloud, FakeConnector, make_offer

JOB = Job(name="digits", time_limit=timedelta(hours=1), budget_usd=Decimal(5))
SPEC = LaunchSpec(run_id=RUN, provider="fake", job=JOB, ssh_from="203.0.113.7/32")


class Desk(App):
    """A laptop with an account at the fake cloud."""

    def __init__(self, folder: Path) -> None:
        super().__init__(read_settings({"KEDGE_STATE_DIR": str(folder)}))
        self.time = FakeClock()
        self.clock = self.time
        self.cloud = Cloud(clock=self.time)
        self.said: list[str] = []
        self.plans: list[Plan] = []

    def world(self, provider: str) -> World:
        assert provider == "fake"
        made = make_world(self.ledger, self.cloud)
        return replace(made, clock=self.time, connector=FakeConnector(self.time))

    def launch(self, spec: LaunchSpec = SPEC) -> RunProgress:
        """Do what `kedge launch` does with a plan."""

        def apply_plan(plan: Plan) -> RunProgress:
            self.plans.append(plan)
            return self.apply(spec, plan, ignore)

        plan = observe_and_plan(self, spec, follow=False)
        return apply_replacing_unfit(self, spec, plan, apply_plan, follow=False, say=self.said.append)

    def zones(self) -> list[str]:
        """Return the zones where machines were requested."""
        return [order.zone for order in self.cloud.orders]

    def live(self) -> list[str]:
        """List the machines whose meter runs, by the ledger."""
        return [machine.id for machine in self.ledger.machines(RUN, live_only=True)]

    def stage(self) -> RunStage:
        record = self.ledger.run(RUN)
        assert record is not None
        return record.stage


def ignore(_event: Event) -> None:
    """Show nothing."""


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path)
    yield made
    made.ledger.close()


def test_an_unfit_machine_is_ended_and_the_next_offer_is_used(desk: Desk) -> None:
    """The second machine is created when the end of the first is confirmed and its meter has stopped."""
    progress = desk.launch()
    assert progress.finished
    assert desk.zones() == [SORRY, FINE]
    assert [machine.id for machine in desk.cloud.there] == desk.live() == [f"{RUN}-m2"]
    assert desk.said == [
        f"machine {RUN}-m1 fails its burn-in (burn-in: {ERROR}): it was ended; another offer is taken, if there is one"
    ]
    offered = [action.offers for plan in desk.plans for action in plan.actions if isinstance(action, CreateMachine)]
    assert offered == [(make_offer(SORRY), make_offer(FINE)), (make_offer(FINE),)]


def test_a_machine_that_can_not_be_started_is_followed_by_the_next_offer(desk: Desk) -> None:
    """Its provider accepted it and ended it before it ran: it costs nothing, and the next one is created."""
    desk.cloud.zones = (DEAD, FINE)
    progress = desk.launch()
    assert progress.finished
    assert desk.zones() == [DEAD, FINE]
    assert desk.live() == [f"{RUN}-m2"]
    (said,) = desk.said
    assert said.startswith(f"machine {RUN}-m1 could not be started (Client.InternalError)")


def test_an_offer_that_failed_to_start_for_a_killed_launch_is_tried_last(desk: Desk) -> None:
    """The launch was killed before the machine failed: the next plan ends it, and starts with another offer.

    If there is no other offer, it is tried again: a lack of capacity passes.
    """
    desk.cloud.zones = (DEAD, FINE)
    create, *_ = observe_and_plan(desk, SPEC, follow=False).actions
    desk.apply(SPEC, Plan(run_id=RUN, actions=(create,)), ignore)
    (machine,) = desk.ledger.machines(RUN)
    desk.cloud.there = (replace(machine, state=MachineState.ENDING),)
    end, create, *_ = observe_and_plan(desk, SPEC, follow=False).actions
    assert end == DestroyMachine(machine_id=f"{RUN}-m1", is_ending=True)
    assert isinstance(create, CreateMachine)
    assert create.offers == (make_offer(FINE), make_offer(DEAD))
    desk.cloud.zones = (DEAD,)
    _, create, *_ = observe_and_plan(desk, SPEC, follow=False).actions
    assert isinstance(create, CreateMachine)
    assert create.offers == (make_offer(DEAD),)


def test_a_machine_that_could_not_be_started_for_a_killed_launch_is_a_loss(desk: Desk) -> None:
    """`kedge recover` replaces it like one that was reclaimed."""
    spec = replace(SPEC, recover=True, until=desk.time.now() + timedelta(hours=1))
    desk.cloud.zones = (DEAD, FINE)
    create, *_ = observe_and_plan(desk, spec, follow=False).actions
    desk.apply(spec, Plan(run_id=RUN, actions=(create,)), ignore)
    (machine,) = desk.ledger.machines(RUN)
    desk.cloud.there = (machine,)
    assert not is_lost(desk, desk.named_run(RUN), desk.said.append)
    desk.cloud.there = (replace(machine, state=MachineState.ENDING),)
    assert is_lost(desk, desk.named_run(RUN), desk.said.append)


def test_recovery_does_not_take_the_same_unfit_offer_again(desk: Desk) -> None:
    """A recovery avoids an offer that it has found unfit, as long as there is another."""
    desk.cloud.zones = (DEAD, FINE)
    spec = replace(SPEC, recover=True, until=desk.time.now() + timedelta(hours=1))
    plan = observe_and_plan(desk, spec, follow=False)
    apply_until_done(desk, spec, plan, lambda plan: desk.apply(spec, unfollowed(plan), ignore), desk.said.append)
    assert desk.zones() == [DEAD, FINE]


def unfollowed(plan: Plan) -> Plan:
    """Keep only a machine's creation and boot: these tests run no command."""
    kept = (CreateMachine, AwaitMachine)
    return replace(plan, actions=tuple(action for action in plan.actions if isinstance(action, kept)))


def test_the_end_of_an_unfit_machine_is_in_the_ledger_before_it_happens(desk: Desk) -> None:
    """If the command is killed then, nobody must think that a user ended the machine: that would close the run."""
    desk.cloud.zones = (SORRY,)
    with pytest.raises(NoCapacityError):
        desk.launch()
    wanted = [(intent.kind, intent.state.value) for intent in desk.ledger.intents(RUN)]
    kinds = (CreateMachine.__name__, AwaitMachine.__name__, DestroyMachine.__name__)
    assert wanted == list(zip(kinds, ("done", "failed", "done"), strict=True))


def test_if_every_offer_is_unfit_no_machine_is_left(desk: Desk) -> None:
    """Each is rented once; the error names them, and the run stays: it may continue another day."""
    desk.cloud.zones = (SORRY,)
    with pytest.raises(NoCapacityError, match="no other offer") as caught:
        desk.launch()
    assert desk.zones() == [SORRY]
    assert desk.cloud.there == ()
    assert desk.live() == []
    assert caught.value.why == "rented and found unfit: fake/earth/sorry big"
    assert f"`kedge resume {RUN}`" in caught.value.fix
    assert desk.stage() is RunStage.LIVE
    assert [intent.subject for intent in desk.ledger.open_intents(RUN)] == []


def test_the_cost_of_an_unfit_machine_counts_in_the_budget(desk: Desk) -> None:
    """After its burn-in the budget is too small for another machine's worst case: none is created."""
    desk.cloud.burn_in = timedelta(minutes=50)
    spec = replace(SPEC, job=msgspec.structs.replace(JOB, budget_usd=Decimal(3)))
    with pytest.raises(OverBudgetError) as caught:
        desk.launch(spec)
    assert caught.value.what == "the worst case costs $3.67, over the budget of $3.00"
    assert desk.zones() == [SORRY]
    assert desk.live() == []


def test_no_machine_follows_an_unfit_one_whose_end_is_not_confirmed(desk: Desk) -> None:
    """It may still bill, and the error says so; its entry in the ledger stays."""
    desk.cloud.confirms = False
    with pytest.raises(StillBillingError, match="may still be billing"):
        desk.launch()
    assert desk.zones() == [SORRY]
    assert desk.live() == [f"{RUN}-m1"]


def test_an_unfit_machine_of_an_earlier_command_is_followed_by_the_next_offer(desk: Desk) -> None:
    """The earlier command was killed: the ledger knows the machine's offer, which isn't tried again."""
    create, *_ = observe_and_plan(desk, SPEC, follow=False).actions
    desk.apply(SPEC, Plan(run_id=RUN, actions=(create,)), ignore)
    assert desk.zones() == [SORRY]
    assert desk.launch().finished
    assert desk.zones() == [SORRY, FINE]
    assert desk.live() == [f"{RUN}-m2"]
    assert desk.stage() is RunStage.LIVE


def test_after_a_plan_that_rents_nothing_another_machine_needs_a_yes(desk: Desk) -> None:
    """`resume` waits for a machine that turns out unfit: it is ended, and the plan for another one asks first."""
    create, *_ = observe_and_plan(desk, SPEC, follow=False).actions
    desk.apply(SPEC, Plan(run_id=RUN, actions=(create,)), ignore)
    plan = observe_and_plan(desk, SPEC, follow=False)
    assert not any(isinstance(action, CreateMachine) for action in plan.actions)
    with pytest.raises(BadRequestError, match="needs your confirmation"):
        carry_out(desk, SPEC, plan)
    assert desk.zones() == [SORRY]
    assert desk.cloud.there == ()
    assert desk.live() == []
    assert desk.stage() is RunStage.LIVE
    carry_out(desk, SPEC, observe_and_plan(desk, SPEC, follow=False, avoided=[make_offer(SORRY)]), yes=True)
    assert desk.zones() == [SORRY, FINE]


def test_a_plan_says_that_the_next_offer_is_used_without_asking(desk: Desk) -> None:
    """The user agrees to that and to its cost."""
    told = [note for note in observe_and_plan(desk, SPEC, follow=False).notes if "without asking" in note]
    assert told[0].endswith(
        "is ended, and another offer is taken without asking; what it has cost counts in the budget"
    )
    free = replace(SPEC, job=msgspec.structs.replace(JOB, budget_usd=None))
    assert any(note.endswith("on top of the worst case") for note in observe_and_plan(desk, free, follow=False).notes)
    desk.cloud.zones = (FINE,)
    assert not any("without asking" in note for note in observe_and_plan(desk, SPEC, follow=False).notes)


@pytest.mark.parametrize(("envs", "wheel"), [((), ""), (((TORCH_WHEEL, "rocm6.4"),), "rocm6.4")], ids=["none", "one"])
def test_a_machine_is_told_how_many_gpus_to_try_and_which_torch_its_job_wants(
    desk: Desk, envs: tuple[tuple[str, str], ...], wheel: str
) -> None:
    """The number is that of the chosen offer."""
    desk.cloud.zones = (FINE,)
    desk.launch(replace(SPEC, job=msgspec.structs.replace(JOB, envs=envs)))
    (order,) = desk.cloud.orders
    assert (order.boot.gpus, order.boot.torch_wheel) == (8, wheel)


def test_a_boot_that_fails_for_another_reason_is_not_followed_by_another_machine(desk: Desk) -> None:
    """Another machine would fail the same way, and this one can be examined."""
    desk.cloud.zones = (BROKEN, FINE)
    with pytest.raises(KedgeError, match=r"the boot of machine .* failed") as caught:
        desk.launch()
    assert not isinstance(caught.value, UnfitMachineError)
    assert desk.zones() == [BROKEN]
    assert desk.live() == [f"{RUN}-m1"]
