"""Commands that launch or resume a run, and what one needs before: launch, plan, resume, offers, jobs, job-schema."""

from __future__ import annotations

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
    shows the plan first, and asks. Leaving the log with Ctrl-C never ends the run.

    Examples:
      kedge launch --job digits --mode validate
      kedge launch --modes validate,fast
      kedge launch --ttl 2h --budget 10 --yes
      kedge launch --provider aws --gpu t4 --spot --recover --job digits
      kedge launch --dry-run --price 1.99
    """
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
    live = live_here(app)
    plan = observe_and_plan(app, spec, follow=not detach)
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
    json: bool,
) -> None:
    """Print what `launch` would do, its price, time and worst case.

    It takes the same flags.

    Examples:
      kedge plan --job digits --mode full
      kedge plan --json
    """
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
    carry_out(app, spec, observe_and_plan(app, spec, follow=not detach), dry_run=True, as_json=json)


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


@command("offers")
def offers(_context: Context, *, overrides: Overrides, refresh: bool, json: bool) -> None:
    """List what is for sale now, in the order that `launch` tries.

    With --gpu it lists machines with that GPU, without it those that a launch without --gpu takes.

    Examples:
      kedge offers
      kedge offers --provider do --gpu h100
      kedge offers --provider aws --gpu a10g:4 --spot --region us-east-1,us-west-2
      kedge offers --provider aws --refresh
    """
    from orchestrator.app.launch.launching import find_offers, refresh_offers
    from orchestrator.app.root import App
    from orchestrator.cli.drawing import render
    from orchestrator.core.errors import BadRequestError

    app = App()
    if refresh:
        if json:
            raise BadRequestError("--refresh lists no offers, so it has no --json", fix="leave one of them out")
        render.said(refresh_offers(app, overrides))
        return
    found, basis = find_offers(app, overrides)
    render.offers(found, basis, as_json=json)


@command("jobs")
def jobs(_context: Context, *, json: bool) -> None:
    """List the jobs that `launch --job NAME` knows, with their modes.

    Examples:
      kedge jobs
    """
    from pathlib import Path

    from orchestrator.adapters.jobfile.lookup.listing import list_jobs
    from orchestrator.cli.drawing import render

    render.jobs(list_jobs(Path.cwd()), as_json=json)


@command("job-schema")
def job_schema(_context: Context, *, output: str | None) -> None:
    """Write the JSON schema of job files, for editors.

    With it, editors complete and check a job file while you write.

    Examples:
      kedge job-schema --output kedge.schema.json
    """
    from orchestrator.adapters.jobfile.schema import job_schema as make_schema
    from orchestrator.cli.drawing import render

    render.schema(make_schema(), output)
