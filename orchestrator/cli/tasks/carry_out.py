"""Shows a plan, asks, applies it while drawing its progress, and prints how it ended.

A plan may need others after it. If its machine is unfit or lost, app/launch/recovering.py makes a new plan, and calls
back to have it applied; App.apply executes one plan.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.console import Console

from orchestrator.app.acting import ended_spec, teardown_plan
from orchestrator.app.root import App
from orchestrator.cli.drawing import plans, render
from orchestrator.cli.drawing.checks import show_on
from orchestrator.cli.drawing.progress import Watcher
from orchestrator.cli.terminal.ask import confirm
from orchestrator.cli.terminal.console import make_console, print_folded
from orchestrator.cli.terminal.ssh_offer import offer_ssh_config
from orchestrator.core.actions import (
    Action,
    CreateMachine,
    DestroyMachine,
    ExtendDeadline,
    FetchResults,
    FollowCommand,
    StopCommand,
)
from orchestrator.core.errors import BadRequestError, KedgeError, RunFailedError, StillBillingError
from orchestrator.core.job import LaunchSpec
from orchestrator.core.ledger import RunRecord
from orchestrator.core.modes import mode_title, with_recorded_modes
from orchestrator.core.plan import Plan, refuse_snapshot
from orchestrator.core.protocol.report import RunState
from orchestrator.engine.run_progress import RunProgress


def carry_out(  # noqa: PLR0913 - how it is shown, asked and answered
    app: App,
    spec: LaunchSpec,
    plan: Plan,
    *,
    findings: Sequence[str] = (),
    question: str = "Go ahead?",
    dry_run: bool = False,
    yes: bool = False,
    as_json: bool = False,
    answer: Callable[[object], None] = render.print_json,
) -> None:
    """Show a plan and, unless it is a dry run, apply it.

    Args:
        app: the composition root.
        spec: the run.
        plan: what to do.
        findings: what was found before planning, one line each.
        question: asked if the plan costs money or deletes something.
        dry_run: only show it.
        yes: don't ask.
        as_json: print one JSON document on standard output, and everything else on standard error.
        answer: prints that document.

    Raises:
        BadRequestError: it needs a confirmation that the user didn't give, or the check of the data has failed.
        RunFailedError: the command failed for good.
        KedgeError: an action failed; what exists was printed.
    """
    if dry_run and as_json:
        answer(plans.plan_as_data(plan))
        return
    console = make_console(stderr=as_json)
    plans.print_plan(console, spec, plan, findings)
    if dry_run:
        return
    refuse_snapshot(plan)
    try:
        if plan.checks or any(_needs_yes(action) for action in plan.actions):
            confirm(question, yes=yes)
        _check_data(app, plan, console, stderr=as_json)
        if not (yes or as_json) and any(isinstance(action, CreateMachine) for action in plan.actions):
            offer_ssh_config(app)
        progress = _apply(app, spec, plan, console, yes=yes)
    except BadRequestError:
        raise
    except (KedgeError, KeyboardInterrupt):
        plans.print_remaining(console, app, spec)
        raise
    _conclude(app, spec, plan, progress, console, answer=answer if as_json else None)


def _needs_yes(action: Action) -> bool:
    """Tell whether an action costs money, or deletes something for good."""
    match action:
        case CreateMachine() | DestroyMachine() | ExtendDeadline():
            return True
        case StopCommand():
            return action.now or action.leaves_mode
        case _:
            return False


def _check_data(app: App, plan: Plan, console: Console, *, stderr: bool) -> None:
    """Run the job's checks of its data, before anything is created.

    Raises:
        BadRequestError: one has failed, or several.
    """
    from orchestrator.app.launch.checks import run_checks

    if plan.checks:
        console.print("Checking the data:", markup=False)
        run_checks(app, plan.checks, show_on(stderr=stderr))


def _apply(app: App, spec: LaunchSpec, first: Plan, console: Console, *, yes: bool) -> RunProgress:
    """Apply a plan, and new ones if its machine is unfit or lost; a machine is rented only after the user's yes.

    Raises:
        BadRequestError: the first plan rents no machine, and the user doesn't want another one.
    """
    from orchestrator.app.launch.recovering import apply_replacing_unfit, apply_until_done

    # Only a command that follows its run notices that the run loses its machine.
    recovers = spec.recover and _follows(first)
    agreed = recovers or any(isinstance(action, CreateMachine) for action in first.actions)

    def say(text: str) -> None:
        console.print(text, markup=False)

    def apply_one(plan: Plan) -> RunProgress:
        current = spec
        if plan is not first:
            current = app.named_run(spec.run_id).spec
            plans.print_plan(console, current, plan)
            if not agreed:
                confirm("Rent another machine?", yes=yes)
        with Watcher(console, current, plan) as watcher:
            return app.apply(current, plan, watcher)

    def apply_replacing(plan: Plan) -> RunProgress:
        return apply_replacing_unfit(app, spec, plan, apply_one, follow=_follows(first), say=say)

    if not recovers:
        return apply_replacing(first)
    return apply_until_done(app, spec, first, apply_replacing, say)


def _follows(plan: Plan) -> bool:
    return any(isinstance(action, FollowCommand) for action in plan.actions)


def tear_down(app: App, record: RunRecord, *, fetch: bool, dry_run: bool, yes: bool, as_json: bool) -> None:
    """End everything that a run has, and close it in the ledger; a dry run shows the plan for that.

    Raises:
        StillBillingError: the provider didn't confirm the end of a machine.
    """
    findings = app.reconcile(record)
    plan = teardown_plan(app, record, fetch=fetch)
    if dry_run:
        carry_out(app, ended_spec(record), plan, findings=findings, dry_run=True, as_json=as_json)
        return
    if plan.actions:
        _end_machines(app, record, plan, findings, yes=yes, as_json=as_json)
        return
    kept = app.end(record.run_id)
    console = make_console(stderr=as_json)
    for finding in (*findings, *kept):
        print_folded(console, f"  {finding}")
    console.print(f"Nothing of run {record.run_id} is left at its provider.", markup=False)
    if fetch and app.world(record.spec.provider).has_results(record.run_id):
        console.print(f"Its results are kept: `kedge fetch {record.run_id}`.", markup=False)
    if as_json:
        render.print_json(plans.run_as_data(app, record.spec, RunProgress(finished=True)))


def _end_machines(
    app: App, record: RunRecord, plan: Plan, findings: Sequence[str], *, yes: bool, as_json: bool
) -> None:
    """Apply a teardown; a failure means that something may still bill."""
    try:
        carry_out(app, ended_spec(record), plan, findings=findings, yes=yes, as_json=as_json)
    except (BadRequestError, StillBillingError):
        raise
    except KedgeError as err:
        raise StillBillingError(
            f"run {record.run_id} may still be billing: {err.what}",
            why=err.why,
            fix=f"`kedge teardown {record.run_id} --no-fetch` ends it without its results; {err.fix}",
        ) from err


def _conclude(
    app: App,
    spec: LaunchSpec,
    plan: Plan,
    progress: RunProgress,
    console: Console,
    *,
    answer: Callable[[object], None] | None,
) -> None:
    record = app.ledger.run(spec.run_id)
    spec = with_recorded_modes(spec, record.spec) if record is not None else spec
    fetches = [action for action in plan.actions if isinstance(action, FetchResults)]
    plans.print_conclusion(console, app, spec, progress, fetches if progress.finished else [])
    if answer is not None:
        answer(plans.run_as_data(app, spec, progress))
    if _follows(plan) and progress.command.state is RunState.FAILED:
        raise _failure(spec, progress)


def _failure(spec: LaunchSpec, progress: RunProgress) -> RunFailedError:
    """Make the error that says which mode and which tasks have failed, what wasn't started, and where to read why."""
    failed = {name: command for name, command in progress.tasks.items() if command.state is RunState.FAILED}
    reasons = {name: command.reason or f"it exited with {command.exit_code}" for name, command in failed.items()}
    if not failed:
        why = progress.command.reason or f"it exited with {progress.command.exit_code}"
    else:
        why = "; ".join(f"{name}: {reason}" for name, reason in reasons.items())
    named = f"{'task' if len(failed) == 1 else 'tasks'} {', '.join(failed)}" if failed else "the command"
    if spec.sequence or spec.later:
        named = f"{named} of mode {mode_title(spec, spec.sequence)}"
    if spec.later:
        why = f"{why}; not started: {', '.join(job.mode for job in spec.later)}"
    options = "".join(f" --task {name}" for name in failed)
    return RunFailedError(
        f"{named} of {spec.run_id} failed",
        why=why,
        fix=f"read its log with `kedge logs {spec.run_id}{options}`; `kedge resume {spec.run_id}` tries again",
    )
