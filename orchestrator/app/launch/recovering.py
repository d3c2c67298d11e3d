"""Replaces machines that a run has lost: makes and applies new plans until the command has ended.

`launch --recover` does this while it runs; `recover`, which a timer calls, does it for runs that nobody follows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta

from orchestrator.app.launch.launching import observe_and_plan
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
from orchestrator.core.policy.recovery import describe_end, is_loss
from orchestrator.core.ports import Clock
from orchestrator.core.protocol.report import RunState
from orchestrator.engine.observing.observe import ask_one, find_machines, latest_command, why_ended
from orchestrator.engine.performing import RunProgress

_FIRST_PAUSE = timedelta(seconds=15)
_LONGEST_PAUSE = timedelta(minutes=5)

Say = Callable[[str], None]


def apply_until_done(
    app: App, spec: LaunchSpec, plan: Plan, apply_plan: Callable[[Plan], RunProgress], say: Say
) -> RunProgress:
    """Apply a plan, and new ones each time the run's machine is lost, even during its boot.

    Each new plan must fit the run's budget, including what earlier machines have cost, and its deadline.

    Args:
        app: the composition root.
        spec: the run.
        plan: the first plan, which the user has confirmed.
        apply_plan: applies one plan.
        say: receives remarks between two plans.

    Raises:
        OverBudgetError: another machine may cost more than what is left.
        BadRequestError: the run's time is over.
        KedgeError: an action failed for another reason than the loss of a machine.
    """
    backoff = _Backoff(app.clock, say)
    avoided: list[Offer] = []
    while True:
        try:
            progress = apply_plan(plan)
        except (BadRequestError, OverBudgetError, RunFailedError):
            raise
        except KedgeError as err:
            if isinstance(err, UnfitMachineError) and err.offer is not None:
                avoided.append(err.offer)
            if not is_lost(app, app.named_run(spec.run_id), say):
                raise
            _handle_loss(err, backoff, say)
        else:
            if not progress.command.was_reclaimed:
                return progress
            backoff.reset()
            say("the provider reclaims the machine; it is replaced")
        plan = _plan_again(app, spec, backoff, avoided)


def apply_replacing_unfit(
    app: App, spec: LaunchSpec, plan: Plan, apply_plan: Callable[[Plan], RunProgress], *, follow: bool, say: Say
) -> RunProgress:
    """Apply a plan, and new ones with other offers as long as the rented machine turns out to be unfit.

    Each new plan must fit the run's budget, including what the unfit machines have cost.

    Raises:
        NoCapacityError: no other offer is left.
        OverBudgetError: another machine may cost more than what is left.
        UnfitMachineError: a machine is unfit, and the ledger doesn't know its offer.
    """
    avoided: list[Offer] = []
    while True:
        try:
            return apply_plan(plan)
        except UnfitMachineError as err:
            if err.offer is None:
                raise
            avoided.append(err.offer)
            say(f"{err.what} ({err.why}): it was ended; another offer is taken, if there is one")
        plan = observe_and_plan(app, spec, follow=follow, avoided=avoided)


@dataclass(slots=True)
class _Backoff:
    """Waits when nothing is available, longer each time."""

    clock: Clock
    say: Say
    pause: timedelta = _FIRST_PAUSE

    def wait(self, err: NoCapacityError) -> None:
        self.say(f"{err.what}; looking again in {self.pause.total_seconds():.0f} s")
        self.clock.sleep(self.pause)
        self.pause = min(self.pause * 2, _LONGEST_PAUSE)

    def reset(self) -> None:
        self.pause = _FIRST_PAUSE


def _handle_loss(err: KedgeError, backoff: _Backoff, say: Say) -> None:
    if isinstance(err, NoCapacityError):
        backoff.wait(err)
        return
    backoff.reset()
    say(f"{err.what}; the machine is replaced")


def _plan_again(app: App, spec: LaunchSpec, backoff: _Backoff, avoided: list[Offer]) -> Plan:
    """Plan without the offers that were found unfit; if none is left, wait and then try them again."""
    while True:
        app.reconcile(app.named_run(spec.run_id))
        try:
            return observe_and_plan(app, spec, follow=True, avoided=avoided)
        except NoCapacityError as err:
            backoff.wait(err)
            avoided.clear()


def recoverable_runs(app: App) -> tuple[RunRecord, ...]:
    """List the live runs that may be recovered and whose time isn't over."""
    now = app.clock.now()
    runs = (record for record in app.ledger.runs(live_only=True) if record.spec.recover)
    return tuple(record for record in runs if record.spec.until is None or now < record.spec.until)


def is_lost(app: App, record: RunRecord, say: Say) -> bool:
    """Tell whether to replace a run's machine: it is lost, nobody asked to end it, and the run isn't over.

    Args:
        app: the composition root.
        record: the run, as the ledger had it.
        say: receives a remark about what was found.

    Raises:
        ConflictError: another command is acting on the run, and will find out by itself.
    """
    for finding in app.reconcile(record):
        say(finding)
    record = app.named_run(record.run_id)
    if record.stage is not RunStage.LIVE or not record.spec.recover or not app.ledger.machines(record.run_id):
        return False
    world = app.world(record.spec.provider)
    machines = find_machines(world, record.run_id)
    report = ask_one(world, machines)
    if usable_machine(machines, report) is not None:
        # Its creator died before the command was started.
        return report is not None and report.command.state is RunState.IDLE and not report.command.started
    last = (machines or app.ledger.machines(record.run_id))[-1]
    end = why_ended(world, last.id) if machines else last.end
    lost = is_loss(report.command if report else latest_command(world, record.run_id), end)
    if end is not None and not lost:
        say(f"machine {last.id} is not replaced: {describe_end(world.provider.name, end)}")
    return lost


def recovered_spec(app: App, record: RunRecord) -> LaunchSpec:
    """Return the specification to continue with: the run's own, except for a range that this command's user gave."""
    return replace(record.spec, ssh_from=app.settings.ssh_from or record.spec.ssh_from)


def recovery_plan(app: App, spec: LaunchSpec) -> Plan:
    """Plan the recovery of a lost run, without following it."""
    return observe_and_plan(app, spec, follow=False)
