"""Replaces machines that a run has lost: makes and applies new plans until the command has ended.

`launch --recover` does this while it runs; `recover`, which a timer calls, does it for runs that nobody follows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from orchestrator.app.launch.launching import observe_and_plan
from orchestrator.app.root import App
from orchestrator.core.errors import (
    BadRequestError,
    ConflictError,
    KedgeError,
    NoCapacityError,
    OverBudgetError,
    RunFailedError,
    UnfitMachineError,
)
from orchestrator.core.job import LaunchSpec
from orchestrator.core.ledger import RunRecord, RunStage
from orchestrator.core.machine import EndedBy, Machine, MachineEnd, MachineState, newest_gang
from orchestrator.core.offer import Offer
from orchestrator.core.plan import Plan, usable_machines
from orchestrator.core.policy.recovery import describe_end, is_loss
from orchestrator.core.ports import Clock
from orchestrator.core.protocol.report import RunState
from orchestrator.engine.observing.observe import (
    ask_machines,
    find_machines,
    head_reports,
    idle_machines,
    latest_command,
    why_ended,
)
from orchestrator.engine.run_progress import RunProgress

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
        ConflictError: another command has ended the run, or turned its recovery off.
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
            if isinstance(err, UnfitMachineError):
                avoided += _ruled_out(err)
            if not is_lost(app, app.named_run(spec.run_id), say):
                raise
            _handle_loss(err, backoff, say)
        else:
            command = progress.command
            if not command.was_reclaimed and (not command.lost_peer or _is_unwanted(app, spec.run_id, say)):
                return progress
            backoff.reset()
            why = command.reason if command.lost_peer else "the provider reclaims the machine"
            say(f"{why}; it is replaced")
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
        ConflictError: another command has ended the run, or turned its recovery off.
    """
    avoided: list[Offer] = []
    while True:
        try:
            return apply_plan(plan)
        except UnfitMachineError as err:
            if err.offer is None:
                raise
            avoided += _ruled_out(err)
            few = {0: "nothing was rented", 1: "it was ended"}
            ended = few.get(err.machines, f"{err.machines} machines were ended")
            say(f"{err.what} ({err.why}): {ended}; another offer is taken, if there is one")
        current = _current_spec(app, spec)
        plan = observe_and_plan(app, current, follow=follow, avoided=avoided)


def _ruled_out(err: UnfitMachineError) -> list[Offer]:
    return [*([err.offer] if err.offer is not None else []), *err.covered]


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
    """Plan without the offers that were found unfit; if none is left, wait and then try them again.

    Raises:
        ConflictError: another command has ended the run meanwhile, or turned its recovery off.
    """
    while True:
        app.reconcile(app.named_run(spec.run_id))
        try:
            return observe_and_plan(app, _current_spec(app, spec), follow=True, avoided=avoided)
        except NoCapacityError as err:
            backoff.wait(err)
            avoided.clear()


def _current_spec(app: App, spec: LaunchSpec) -> LaunchSpec:
    """Return the run as other commands have left it: extended, with other variables, or in another mode.

    Raises:
        ConflictError: another command has ended the run, or turned its recovery off.
    """
    record = app.named_run(spec.run_id)
    if record.stage is not RunStage.LIVE or (spec.recover and not record.spec.recover):
        raise ConflictError(
            f"run {spec.run_id} gets no other machine",
            why="another command has turned its recovery off" if record.stage is RunStage.LIVE else "it is over",
            fix=f"go on with `kedge resume {spec.run_id}`",
        )
    return record.spec


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
    reports = ask_machines(world, machines, record.spec.job.num_nodes)
    report = next(iter(head_reports(machines, reports)), None)
    usable = usable_machines(machines, reports, record.spec.job.num_nodes)
    if usable:
        # Its creator died before the command was started everywhere.
        idle = idle_machines(app.ledger.intents(record.run_id), record.spec.job)
        waiting = (each.command for each in reports if each.machine not in idle)
        return any(command.state is RunState.IDLE and not command.started for command in waiting)
    last, end = _how_lost(app, record, machines)
    lost = is_loss(report.command if report else latest_command(world, record.run_id), end)
    if end is not None and not lost:
        say(f"machine {last.id} is not replaced: {describe_end(world.provider.name, end)}")
    return lost


def _is_unwanted(app: App, run_id: str, say: Say) -> bool:
    """Tell whether somebody ended the machine that the others have lost: whoever did that wants no other one."""
    record = app.named_run(run_id)
    app.reconcile(record)
    world = app.world(record.spec.provider)
    last, end = _how_lost(app, record, find_machines(world, run_id))
    if end is None or end.by is not EndedBy.SOMEBODY:
        return False
    say(f"machine {last.id} is not replaced: {describe_end(world.provider.name, end)}")
    return True


def _how_lost(app: App, record: RunRecord, there: Sequence[Machine]) -> tuple[Machine, MachineEnd | None]:
    """Return the machine whose loss stops a run, and what has ended it, if that is known."""
    last = _lost_machine(app, record, there)
    is_there = any(each.id == last.id for each in there)
    return last, why_ended(app.world(record.spec.provider), last.id) if is_there else last.end


def _lost_machine(app: App, record: RunRecord, there: Sequence[Machine]) -> Machine:
    """Return the machine whose loss stops a run: of several, the first that is gone or ending."""
    if record.spec.job.num_nodes == 1:
        return (there or app.ledger.machines(record.run_id))[-1]
    gang = newest_gang(app.ledger.machines(record.run_id))
    well = {each.id for each in there if each.state in (MachineState.BOOTING, MachineState.READY)}
    return next((machine for machine in gang if machine.id not in well), gang[-1])


def recovered_spec(app: App, record: RunRecord) -> LaunchSpec:
    """Return the specification to continue with: the run's own, except for a range that this command's user gave."""
    return replace(record.spec, ssh_from=app.settings.ssh_from or record.spec.ssh_from)


def recovery_plan(app: App, spec: LaunchSpec) -> Plan:
    """Plan the recovery of a lost run, without following it."""
    return observe_and_plan(app, spec, follow=False)
