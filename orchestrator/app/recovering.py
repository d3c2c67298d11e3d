"""A run that outlives its machines: another plan for as long as machines are taken away from it.

`launch --recover` does it while it runs; `recover`, which a timer calls, does it for runs that nobody follows.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from orchestrator.app.launching import launch_plan
from orchestrator.app.root import App
from orchestrator.core.errors import BadRequestError, KedgeError, NoCapacityError, OverBudgetError, RunFailedError
from orchestrator.core.job import LaunchSpec
from orchestrator.core.ledger import RunRecord, RunStage
from orchestrator.core.plan import Plan, usable_machine
from orchestrator.core.report import RunState
from orchestrator.engine.apply import Progress
from orchestrator.engine.observe import ask, latest_command

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
    pause = _FIRST_PAUSE
    while True:
        try:
            progress = carry_out(plan)
        except (BadRequestError, OverBudgetError, RunFailedError):
            raise
        except KedgeError as err:
            if not is_lost(app, app.named_run(spec.run_id)):
                raise
            say(f"{err.what}; the machine is replaced")
        else:
            if not progress.command.was_reclaimed:
                return progress
            say("the machine is being taken away; it is replaced")
        replanned = None
        while replanned is None:
            replanned, pause = _plan_anew(app, spec, pause, say)
        plan = replanned


def _plan_anew(app: App, spec: LaunchSpec, pause: timedelta, say: Say) -> tuple[Plan | None, timedelta]:
    """Plan again; where nothing is to be had, wait, longer each time."""
    app.settle(app.named_run(spec.run_id))
    try:
        return launch_plan(app, spec, follow=True), _FIRST_PAUSE
    except NoCapacityError as err:
        say(f"{err.what}; looking again in {pause.total_seconds():.0f} s")
    app.clock.sleep(pause)
    return None, min(pause * 2, _LONGEST_PAUSE)


def recoverable_runs(app: App) -> tuple[RunRecord, ...]:
    """List the live runs that are to be recovered, should they need it."""
    return tuple(record for record in app.ledger.runs(live_only=True) if record.spec.recover)


def is_lost(app: App, record: RunRecord) -> bool:
    """Tell whether a run that had a machine, and isn't over, has none any more on which its command is or was.

    Raises:
        ConflictError: another command is at work on it, and will see for itself.
    """
    app.settle(record)
    if app.named_run(record.run_id).stage is not RunStage.LIVE or not app.ledger.machines(record.run_id):
        return False
    world = app.world(record.spec.provider)
    machines = tuple(machine for machine in world.provider.machines() if machine.run_id == record.run_id)
    report = next((seen for machine in machines if (seen := ask(world, machine))), None)
    if usable_machine(machines, report) is not None:
        # Whoever made it has died before the command was started.
        return report is not None and report.command.state is RunState.IDLE and not report.command.started
    last = report.command if report else latest_command(world, record.run_id)
    return last is None or not last.state.is_over or last.was_reclaimed


def recovery_plan(app: App, record: RunRecord) -> Plan:
    """Plan what a lost run needs, without following it."""
    return launch_plan(app, record.spec, follow=False)
