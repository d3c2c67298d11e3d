"""A run that outlives its machines: another plan for as long as machines are taken away from it.

`launch --recover` does it while it runs; `recover`, which a timer calls, does it for runs that nobody follows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta

from orchestrator.app.launching import launch_plan
from orchestrator.app.root import App
from orchestrator.core.errors import (
    BadRequestError,
    KedgeError,
    NoCapacityError,
    OverBudgetError,
    RunFailedError,
    UnfitMachineError,
)
from orchestrator.core.job import LaunchSpec
from orchestrator.core.ledger import RunRecord, RunStage
from orchestrator.core.offer import Offer
from orchestrator.core.plan import Plan, usable_machine
from orchestrator.core.ports import Clock
from orchestrator.core.recovery import describe_end, is_loss
from orchestrator.core.report import RunState
from orchestrator.engine.observe import ask_one, find_machines, latest_command, why_ended
from orchestrator.engine.performing import Progress

_FIRST_PAUSE = timedelta(seconds=15)
_LONGEST_PAUSE = timedelta(minutes=5)

Say = Callable[[str], None]


def apply_until_done(
    app: App, spec: LaunchSpec, plan: Plan, carry_out: Callable[[Plan], Progress], say: Say
) -> Progress:
    """Carry out a plan, and new ones while the run's machines are taken away: while they boot as well.

    Each new plan is held to the run's budget, what earlier machines have cost included, and to its deadline.

    Args:
        app: the composition root.
        spec: the run.
        plan: the first plan, which somebody has agreed to.
        carry_out: carries one plan out.
        say: tells what happens between two plans.

    Raises:
        OverBudgetError: another machine may cost more than what is left.
        BadRequestError: the run's time is over.
        KedgeError: something else went wrong than the loss of a machine.
    """
    patience = _Patience(app.clock, say)
    avoided: list[Offer] = []
    while True:
        try:
            progress = carry_out(plan)
        except (BadRequestError, OverBudgetError, RunFailedError):
            raise
        except KedgeError as err:
            if isinstance(err, UnfitMachineError) and err.offer is not None:
                avoided.append(err.offer)
            if not is_lost(app, app.named_run(spec.run_id), say):
                raise
            _bear(err, patience, say)
        else:
            if not progress.command.was_reclaimed:
                return progress
            patience.restore()
            say("the machine is being taken away; it is replaced")
        plan = _plan_anew(app, spec, patience, avoided)


def apply_past_unfit(
    app: App, spec: LaunchSpec, plan: Plan, carry_out: Callable[[Plan], Progress], *, follow: bool, say: Say
) -> Progress:
    """Carry out a plan, and new ones with other offers for as long as what was rented turns out to be unfit.

    Each new plan is held to the run's budget, what the unfit machines have cost included.

    Raises:
        NoCapacityError: no other offer is left.
        OverBudgetError: another machine may cost more than what is left.
        UnfitMachineError: one is unfit, and the ledger doesn't know what it was rented as.
    """
    avoided: list[Offer] = []
    while True:
        try:
            return carry_out(plan)
        except UnfitMachineError as err:
            if err.offer is None:
                raise
            avoided.append(err.offer)
            say(f"{err.what} ({err.why}): it is gone; another offer is taken where there is one")
        plan = launch_plan(app, spec, follow=follow, avoided=avoided)


@dataclass(slots=True)
class _Patience:
    """Waits where nothing is to be had, longer each time."""

    clock: Clock
    say: Say
    pause: timedelta = _FIRST_PAUSE

    def wait(self, err: NoCapacityError) -> None:
        self.say(f"{err.what}; looking again in {self.pause.total_seconds():.0f} s")
        self.clock.sleep(self.pause)
        self.pause = min(self.pause * 2, _LONGEST_PAUSE)

    def restore(self) -> None:
        self.pause = _FIRST_PAUSE


def _bear(err: KedgeError, patience: _Patience, say: Say) -> None:
    if isinstance(err, NoCapacityError):
        patience.wait(err)
        return
    patience.restore()
    say(f"{err.what}; the machine is replaced")


def _plan_anew(app: App, spec: LaunchSpec, patience: _Patience, avoided: list[Offer]) -> Plan:
    """Plan without the offers that were found unfit; where none is left they are tried again, after a while."""
    while True:
        app.settle(app.named_run(spec.run_id))
        try:
            return launch_plan(app, spec, follow=True, avoided=avoided)
        except NoCapacityError as err:
            patience.wait(err)
            avoided.clear()


def recoverable_runs(app: App) -> tuple[RunRecord, ...]:
    """List the live runs that are to be recovered, should they need it, and whose time isn't over."""
    now = app.clock.now()
    runs = (record for record in app.ledger.runs(live_only=True) if record.spec.recover)
    return tuple(record for record in runs if record.spec.until is None or now < record.spec.until)


def is_lost(app: App, record: RunRecord, say: Say) -> bool:
    """Tell whether a run that is to be recovered has lost its machine to nobody's wish, and isn't over.

    Args:
        app: the composition root.
        record: the run, as the ledger had it.
        say: tells what was found.

    Raises:
        ConflictError: another command is at work on it, and will see for itself.
    """
    for finding in app.settle(record):
        say(finding)
    record = app.named_run(record.run_id)
    if record.stage is not RunStage.LIVE or not record.spec.recover or not app.ledger.machines(record.run_id):
        return False
    world = app.world(record.spec.provider)
    machines = find_machines(world, record.run_id)
    report = ask_one(world, machines)
    if usable_machine(machines, report) is not None:
        # Whoever made it has died before the command was started.
        return report is not None and report.command.state is RunState.IDLE and not report.command.started
    last = (machines or app.ledger.machines(record.run_id))[-1]
    end = why_ended(world, last.id) if machines else last.end
    lost = is_loss(report.command if report else latest_command(world, record.run_id), end)
    if end is not None and not lost:
        say(f"machine {last.id} is not replaced: {describe_end(world.provider.name, end)}")
    return lost


def recovered_spec(app: App, record: RunRecord) -> LaunchSpec:
    """Return what a run is to go on with: what it began with, but for the range that this command's user gave."""
    return replace(record.spec, ssh_from=app.settings.ssh_from or record.spec.ssh_from)


def recovery_plan(app: App, spec: LaunchSpec) -> Plan:
    """Plan what a lost run needs, without following it."""
    return launch_plan(app, spec, follow=False)
