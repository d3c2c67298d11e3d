"""Commands that plan, launch or resume a run."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from invoke.context import Context

from orchestrator.cli.commands import command

if TYPE_CHECKING:
    from orchestrator.adapters.jobfile.overrides import Overrides


@command("launch")
def launch(  # noqa: PLR0913 - one parameter for each flag
    _context: Context,
    *,
    overrides: Overrides,
    job: str | None,
    mode: str | None,
    modes: str | None,
    ssh_from: str | None,
    without_reaper: bool,
    detach: bool,
    keep: bool,
    recover: bool,
    no_recover: bool,
    dry_run: bool,
    yes: bool,
    json: bool,
) -> None:
    """Rent a machine, run the job, fetch the results, end the machine.

    Without --job it takes the nearest kedge.yaml; if there is none, it rents a plain machine, which runs nothing. It
    shows the plan first, and asks. After your yes it runs the job's `check` of the data, if there is one. Leaving the
    log with Ctrl-C never ends the run.

    Examples:
      kedge launch --job digits --mode validate
      kedge launch --modes validate,fast
      kedge launch --mode "custom 100 512 256"
      kedge launch --ttl 2h --budget 10 --yes
      kedge launch --provider aws --gpu t4 --spot --recover --job digits
      kedge launch --dry-run --price 1.99
    """
    from orchestrator.app.launch.checks import list_checks, refuse_unseen
    from orchestrator.app.launch.launching import new_launch, observe_and_plan
    from orchestrator.app.launch.modes import split_modes, with_modes
    from orchestrator.app.looking import live_here
    from orchestrator.app.root import App
    from orchestrator.cli.tasks.carry_out import carry_out
    from orchestrator.cli.terminal.say import say

    app = App(ssh_from=ssh_from, tell=say)
    first, then = split_modes(mode, modes)
    spec = new_launch(
        app, job, first, overrides, keep=keep, recover=_either(recover, no_recover), without_reaper=without_reaper
    )
    spec = with_modes(app, spec, job, then, overrides) if then else spec
    checks = list_checks(spec)
    if yes and not (dry_run or overrides.allows_check):
        refuse_unseen(checks)
    live = live_here(app)
    plan = replace(observe_and_plan(app, spec, follow=not detach), checks=checks)
    found = [f"run {each.run_id} of this folder is live" for each in live]
    question = "Launch another run beside it?" if live else "Go ahead?"
    carry_out(app, spec, plan, findings=found, question=question, dry_run=dry_run, yes=yes, as_json=json)


@command("plan")
def plan(  # noqa: PLR0913 - one parameter for each flag
    _context: Context,
    *,
    overrides: Overrides,
    job: str | None,
    mode: str | None,
    modes: str | None,
    ssh_from: str | None,
    without_reaper: bool,
    detach: bool,
    keep: bool,
    recover: bool,
    no_recover: bool,
    all_modes: bool,
    offers: bool,
    json: bool,
) -> None:
    """Print what `launch` would do, its price, time and worst case.

    It takes the same flags. With --all-modes it prints a row for each mode of the job, and what the planned runs of all
    cost together against the budget; with --offers a row for each machine, and a column for each mode.

    Examples:
      kedge plan --job digits --mode full
      kedge plan --all-modes --budget 100
      kedge plan --offers --provider aws --gpu t4
      kedge plan --json
    """
    if all_modes or offers:
        _print_table(job, mode, modes, overrides, all_modes=all_modes, offers=offers, as_json=json)
        return
    from orchestrator.app.launch.checks import list_checks
    from orchestrator.app.launch.launching import new_launch, observe_and_plan
    from orchestrator.app.launch.modes import split_modes, with_modes
    from orchestrator.app.root import App
    from orchestrator.cli.tasks.carry_out import carry_out
    from orchestrator.cli.terminal.say import say

    app = App(ssh_from=ssh_from, tell=say)
    first, then = split_modes(mode, modes)
    spec = new_launch(
        app, job, first, overrides, keep=keep, recover=_either(recover, no_recover), without_reaper=without_reaper
    )
    spec = with_modes(app, spec, job, then, overrides) if then else spec
    plan_ = replace(observe_and_plan(app, spec, follow=not detach), checks=list_checks(spec))
    carry_out(app, spec, plan_, dry_run=True, as_json=json)


def _print_table(
    job: str | None,
    mode: str | None,
    modes: str | None,
    overrides: Overrides,
    *,
    all_modes: bool,
    offers: bool,
    as_json: bool,
) -> None:
    """Print one of the tables of `plan`.

    Raises:
        BadRequestError: the flags contradict each other, or none of the job's modes can be launched.
    """
    from orchestrator.app.launch.tables import plan_modes, plan_offers
    from orchestrator.app.root import App
    from orchestrator.cli.drawing.mode_table import print_modes, print_offers
    from orchestrator.cli.terminal.say import say
    from orchestrator.core.errors import BadRequestError

    if all_modes and offers:
        raise BadRequestError("--all-modes and --offers are two tables", fix="give one of them")
    if modes is not None or (all_modes and mode is not None):
        flag = "--modes" if modes is not None else "--mode"
        raise BadRequestError(f"{flag} chooses among the modes that the table lists", fix=f"leave {flag} out")
    app = App(tell=say)
    if all_modes:
        print_modes(plan_modes(app, job, overrides), as_json=as_json)
    else:
        print_offers(plan_offers(app, job, mode, overrides), as_json=as_json)


@command("resume")
def resume(  # noqa: PLR0913 - one parameter for each flag
    _context: Context,
    *,
    overrides: Overrides,
    run: str | None,
    mode: str | None,
    continue_: bool,
    ttl: str | None,
    budget: str | None,
    without_reaper: bool,
    detach: bool,
    keep: bool,
    recover: bool,
    no_recover: bool,
    ssh_from: str | None,
    command: str | None,
    reread: bool,
    dry_run: bool,
    yes: bool,
    json: bool,
) -> None:
    """Resume a run, on its machine or on a new one.

    A new machine resumes from the last complete checkpoint. With --mode the job's other mode begins, in folders of its
    own; with --env alone the present one goes on with other variables.

    Examples:
      kedge resume
      kedge resume --mode full
      kedge resume digits-1121-k3f9 --ttl 2h --yes
    """
    from orchestrator.adapters.jobfile.values.limits import parse_limited_duration, parse_limited_usd
    from orchestrator.app.launch.launching import Changes, observe_and_plan, replaced_machine, resumed_spec
    from orchestrator.app.launch.modes import change_run
    from orchestrator.app.root import App
    from orchestrator.cli.tasks.carry_out import carry_out

    app = App(ssh_from=ssh_from)
    changes = Changes(
        time_limit=parse_limited_duration(ttl) if ttl else None,
        budget_usd=parse_limited_usd(budget) if budget else None,
        keep=keep,
        recover=_either(recover, no_recover),
        ssh_from=app.settings.ssh_from,
        without_reaper=without_reaper,
    )
    record = app.choose_run(run, live_only=False)
    found = app.reconcile(record)
    changed = change_run(
        app,
        app.named_run(record.run_id),
        command=command,
        reread=reread,
        mode=mode,
        overrides=overrides,
        goes_on=True,
        continues=continue_,
    )
    if ssh_from and not dry_run:
        app.let_in(record)
    spec = resumed_spec(changed.record, changes, app.clock.now())
    plan_ = changed.note_in(observe_and_plan(app, spec, follow=not detach, new_time_limit=ttl is not None))
    findings = tuple(dict.fromkeys((*found, *changed.findings, *replaced_machine(app, record, plan_))))
    carry_out(app, spec, plan_, findings=findings, dry_run=dry_run, yes=yes, as_json=json)


def _either(recover: bool, no_recover: bool) -> bool | None:
    from orchestrator.core.errors import BadRequestError

    if recover and no_recover:
        raise BadRequestError("--recover and --no-recover contradict each other", fix="give one of them")
    return recover if recover or no_recover else None
