"""Tasks that begin a run or go on with one: launch, plan, resume, offers, jobs, job-schema."""

from __future__ import annotations

from typing import Any

from invoke.context import Context
from invoke.tasks import task

from orchestrator.cli.acting import COMMAND, REREAD

_LAUNCH_HELP = {
    "job": "a job file, or the name of one beside the nearest kedge.yaml or in infra/jobs",
    "mode": "a variant of the job, from its `modes`",
    "provider": "where to run: local, aws, do (DigitalOcean) or amd (AMD Developer Cloud)",
    "gpu": "the GPU and how many, for example mi300x or a10g:4",
    "instance-type": "the provider's own name for a type of machine",
    "region": "the region, or several with commas between them, in the order in which to try them",
    "zone": "the zone",
    "image-id": "the image's id",
    "spot": "rent at the spot price; the machine may be reclaimed",
    "disk-size": "size of the root disk in GiB",
    "ssh-from": "who may reach the machine over SSH, as 198.51.100.7/32; this computer's own address when left out",
    "ttl": "the deadline: the machine is gone after this time, whatever happens; for example 90m or 4h",
    "budget": "refuse when the worst case costs more than this many dollars",
    "max-price": "leave out offers above this many dollars an hour; a spot machine is given up above it",
    "price": "rehearse with this price per hour (the local provider)",
    "supervisor": "what keeps the command alive: tmux, screen, nohup, systemd or systemd-user",
    "env": "set a variable of the command, NAME=VALUE; may be repeated",
    "allow-secret": "let the job take a variable of this shell that is kedge's own (AWS_..., AMD_...); may be repeated",
    "allow-proxy-command": "let this computer run the proxy_command of the job file, to reach the machine",
    "detach": "return when the command has started, and leave it running",
    "keep": "leave the machine to its deadline when the command is over",
    "recover": "replace a machine that is taken away, for as long as this command runs",
    "no-recover": "replace none, though the job says `recover: true`",
    "dry-run": "print the plan and do nothing",
    "yes": "don't ask",
    "json": "print one JSON document for scripts; what happens meanwhile goes to standard error",
}


def _overrides(flags: dict[str, Any]) -> Any:
    from orchestrator.adapters.jobfile.flags import Overrides

    return Overrides(
        provider=flags.get("provider"),
        region=flags.get("region"),
        zone=flags.get("zone"),
        instance_type=flags.get("instance_type"),
        gpu=flags.get("gpu"),
        use_spot=True if flags.get("spot") else None,
        image_id=flags.get("image_id"),
        disk_size=flags.get("disk_size"),
        max_usd_per_hour=flags.get("max_price"),
        usd_per_hour=flags.get("price"),
        deadline=flags.get("ttl"),
        budget=flags.get("budget"),
        supervisor=flags.get("supervisor"),
        envs=tuple(flags.get("env") or ()),
        allowed=tuple(flags.get("allow_secret") or ()),
        allows_proxy_command=bool(flags.get("allow_proxy_command")),
    )


@task(help=_LAUNCH_HELP, iterable=["env", "allow_secret"], auto_shortflags=False)
def launch(  # noqa: PLR0913, PLR0917 - one parameter for each flag
    _context: Context,
    job: str | None = None,
    mode: str | None = None,
    provider: str | None = None,
    gpu: str | None = None,
    instance_type: str | None = None,
    region: str | None = None,
    zone: str | None = None,
    image_id: str | None = None,
    spot: bool = False,
    disk_size: str | None = None,
    ssh_from: str | None = None,
    ttl: str | None = None,
    budget: str | None = None,
    max_price: str | None = None,
    price: str | None = None,
    supervisor: str | None = None,
    env: list[str] | None = None,
    allow_secret: list[str] | None = None,
    allow_proxy_command: bool = False,
    detach: bool = False,
    keep: bool = False,
    recover: bool = False,
    no_recover: bool = False,
    dry_run: bool = False,
    yes: bool = False,
    json: bool = False,
) -> None:
    """Rent a machine, run the job, fetch the results, end the machine.

    Without --job the nearest kedge.yaml is taken; where there is none, a plain machine is opened. The plan is
    shown and confirmed first. Leaving the log with Ctrl-C never ends the run.

    Examples:
      kedge launch --job digits --mode validate
      kedge launch --ttl 2h --budget 10 --yes
      kedge launch --provider aws --gpu t4 --spot --recover --job digits
      kedge launch --dry-run --price 1.99
    """
    overrides = _overrides(locals())
    from orchestrator.app.launching import launch_plan, new_launch
    from orchestrator.app.looking import live_here
    from orchestrator.app.root import App
    from orchestrator.cli.carry_out import carry_out
    from orchestrator.cli.say import say

    app = App(ssh_from=ssh_from, tell=say)
    spec = new_launch(app, job, mode, overrides, keep=keep, recover=_either(recover, no_recover))
    live = live_here(app)
    plan = launch_plan(app, spec, follow=not detach)
    found = [f"run {each.run_id} of this folder is live" for each in live]
    question = "Launch another run beside it?" if live else "Go ahead?"
    carry_out(app, spec, plan, findings=found, question=question, dry_run=dry_run, yes=yes, as_json=json)


@task(
    help={flag: text for flag, text in _LAUNCH_HELP.items() if flag not in ("yes", "dry-run")},
    iterable=["env", "allow_secret"],
    auto_shortflags=False,
)
def plan(  # noqa: PLR0913, PLR0917 - one parameter for each flag
    _context: Context,
    job: str | None = None,
    mode: str | None = None,
    provider: str | None = None,
    gpu: str | None = None,
    instance_type: str | None = None,
    region: str | None = None,
    zone: str | None = None,
    image_id: str | None = None,
    spot: bool = False,
    disk_size: str | None = None,
    ssh_from: str | None = None,
    ttl: str | None = None,
    budget: str | None = None,
    max_price: str | None = None,
    price: str | None = None,
    supervisor: str | None = None,
    env: list[str] | None = None,
    allow_secret: list[str] | None = None,
    allow_proxy_command: bool = False,
    detach: bool = False,
    keep: bool = False,
    recover: bool = False,
    no_recover: bool = False,
    json: bool = False,
) -> None:
    """Print what `launch` would do, its price, time and worst case.

    It takes the same flags.

    Examples:
      kedge plan --job digits --mode full
      kedge plan --json
    """
    overrides = _overrides(locals())
    from orchestrator.app.launching import launch_plan, new_launch
    from orchestrator.app.root import App
    from orchestrator.cli.carry_out import carry_out
    from orchestrator.cli.say import say

    app = App(ssh_from=ssh_from, tell=say)
    spec = new_launch(app, job, mode, overrides, keep=keep, recover=_either(recover, no_recover))
    carry_out(app, spec, launch_plan(app, spec, follow=not detach), dry_run=True, as_json=json)


@task(
    help={
        "run": "the run; the only live one of this folder's job when left out",
        "ttl": "the new machine's deadline",
        "budget": "a new cap for the whole run, what it has cost already included",
        "detach": "return when the command has started, and leave it running",
        "keep": "leave the machine to its deadline when the command is over",
        "recover": "replace a machine that is taken away, for as long as this command runs",
        "no-recover": "replace no machine of this run any more",
        "ssh-from": "who may reach the machine from now on, as 198.51.100.0/24; as before when left out",
        "command": COMMAND,
        "reread": REREAD,
        "dry-run": "print the plan and do nothing",
        "yes": "don't ask",
        "json": "print one JSON document for scripts",
    },
    auto_shortflags=False,
)
def resume(  # noqa: PLR0913, PLR0917 - one parameter for each flag
    _context: Context,
    run: str | None = None,
    ttl: str | None = None,
    budget: str | None = None,
    detach: bool = False,
    keep: bool = False,
    recover: bool = False,
    no_recover: bool = False,
    ssh_from: str | None = None,
    command: str | None = None,
    reread: bool = False,
    dry_run: bool = False,
    yes: bool = False,
    json: bool = False,
) -> None:
    """Go on with a run, on its machine or on a new one.

    A new machine goes on from the last complete checkpoint.

    Examples:
      kedge resume
      kedge resume digits-1121-k3f9 --ttl 2h --yes
    """
    from orchestrator.app.changing import change_command, with_changes
    from orchestrator.app.launching import Changes, launch_plan, replaced_machine, resumed_spec
    from orchestrator.app.root import App
    from orchestrator.cli.carry_out import carry_out
    from orchestrator.core.units import parse_duration, parse_usd

    app = App(ssh_from=ssh_from)
    changes = Changes(
        deadline=parse_duration(ttl) if ttl else None,
        budget_usd=parse_usd(budget) if budget else None,
        keep=keep,
        recover=_either(recover, no_recover),
        ssh_from=app.settings.ssh_from,
    )
    record = app.choose_run(run, live_only=False)
    changed, about_job = change_command(app, record, command=command, reread=reread)
    found = (*app.settle(record), *about_job)
    if ssh_from and not dry_run:
        app.let_in(record)
    spec = resumed_spec(changed, changes, app.clock.now())
    plan_ = with_changes(launch_plan(app, spec, follow=not detach, new_deadline=ttl is not None), record, changed)
    findings = tuple(dict.fromkeys((*found, *replaced_machine(app, record, plan_))))
    carry_out(app, spec, plan_, findings=findings, dry_run=dry_run, yes=yes, as_json=json)


def _either(recover: bool, no_recover: bool) -> bool | None:
    from orchestrator.core.errors import BadRequestError

    if recover and no_recover:
        raise BadRequestError("--recover and --no-recover contradict each other", fix="say one of them")
    return recover if recover or no_recover else None


@task(
    help={
        "provider": "whose offers: local, aws, do or amd",
        "gpu": "only those with this GPU, for example mi300x or a10g:4",
        "region": "only this region, or these, with commas between them",
        "instance-type": "only this type of machine",
        "zone": "only this zone",
        "spot": "spot prices",
        "max-price": "leave out what costs more than this many dollars an hour",
        "price": "rehearse with this price per hour (the local provider)",
        "refresh": "write the snapshot of prices anew, which planning without a network uses",
        "json": "print JSON for scripts",
    },
    auto_shortflags=False,
)
def offers(  # noqa: PLR0913, PLR0917 - one parameter for each flag
    _context: Context,
    provider: str | None = None,
    gpu: str | None = None,
    instance_type: str | None = None,
    region: str | None = None,
    zone: str | None = None,
    spot: bool = False,
    max_price: str | None = None,
    price: str | None = None,
    refresh: bool = False,
    json: bool = False,
) -> None:
    """List what is for sale now, in the order that `launch` tries.

    Machines with a GPU are listed for --gpu; without it, the machines that a launch without --gpu takes.

    Examples:
      kedge offers
      kedge offers --provider do --gpu h100
      kedge offers --provider aws --gpu a10g:4 --spot --region us-east-1,us-west-2
      kedge offers --provider aws --refresh
    """
    overrides = _overrides(locals())
    from orchestrator.app.launching import find_offers, refresh_offers
    from orchestrator.app.root import App
    from orchestrator.cli import render
    from orchestrator.core.errors import BadRequestError

    app = App()
    if refresh:
        if json:
            raise BadRequestError("--refresh lists no offers for --json", fix="leave one of them out")
        render.said(refresh_offers(app, overrides))
        return
    found, basis = find_offers(app, overrides)
    render.offers(found, basis, as_json=json)


@task(help={"json": "print JSON for scripts"}, auto_shortflags=False)
def jobs(_context: Context, json: bool = False) -> None:
    """List the jobs that `launch --job NAME` knows, with their modes.

    Examples:
      kedge jobs
    """
    from pathlib import Path

    from orchestrator.adapters.jobfile.listing import list_jobs
    from orchestrator.cli import render

    render.jobs(list_jobs(Path.cwd()), as_json=json)


@task(help={"output": "write to this file instead of the terminal"}, auto_shortflags=False)
def job_schema(_context: Context, output: str | None = None) -> None:
    """Write the JSON schema of job files, for editors.

    With it they complete and check what is written.

    Examples:
      kedge job-schema --output kedge.schema.json
    """
    from orchestrator.adapters.jobfile.schema import job_schema as make_schema
    from orchestrator.cli import render

    render.schema(make_schema(), output)
