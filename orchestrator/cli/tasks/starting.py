"""Commands that start and stop what runs on a run's machine, and send it code and data: start, stop, sync."""

from __future__ import annotations

from typing import TYPE_CHECKING

from invoke.context import Context

from orchestrator.cli.commands import command

if TYPE_CHECKING:
    from orchestrator.adapters.jobfile.overrides import Overrides


@command("start")
def start(  # noqa: PLR0913 - one parameter for each flag
    _context: Context,
    *,
    overrides: Overrides,
    run: str | None,
    task: list[str],
    mode: str | None,
    continue_: bool,
    command: str | None,
    reread: bool,
    dry_run: bool,
    yes: bool,
    json: bool,
) -> None:
    """Start the command again on its machine, or another mode.

    It resumes from its newest checkpoint. Of several tasks, those are started that neither run nor have succeeded.
    With --mode or --env, what still runs is stopped, and the command starts fresh in folders of its own.

    Examples:
      kedge start
      kedge start --mode fast --env EPOCHS=50
      kedge start --mode full --continue
      kedge start --task voxel
      kedge start --reread
      kedge start --command "python train.py --resume out/ckpt.pt"
    """
    from orchestrator.adapters.jobfile.read import adding_line
    from orchestrator.app.acting import start_plan
    from orchestrator.app.launch.modes import change_run
    from orchestrator.app.root import App
    from orchestrator.cli.tasks.carry_out import carry_out
    from orchestrator.cli.terminal.say import say

    app = App(tell=say)
    changed = change_run(
        app,
        app.choose_run(run),
        command=command,
        reread=reread,
        mode=mode,
        overrides=overrides,
        goes_on=False,
        continues=continue_,
    )
    with adding_line(changed.record.spec.job):
        plan = changed.note_in(start_plan(app, changed.record, task))
    question = f"Stop what runs of {changed.record.run_id}, and start this instead?"
    carry_out(
        app,
        changed.record.spec,
        plan,
        findings=changed.findings,
        question=question,
        dry_run=dry_run,
        yes=yes,
        as_json=json,
    )


@command("stop")
def stop(
    _context: Context, *, run: str | None, task: list[str], now: bool, dry_run: bool, yes: bool, json: bool
) -> None:
    """Stop the command; the machine stays and keeps costing money.

    The command checkpoints and exits. Of several tasks, all are stopped if none is named.

    Examples:
      kedge stop
      kedge stop --task voxel
      kedge stop digits-1121-k3f9 --now --yes
    """
    from orchestrator.app.acting import stop_plan
    from orchestrator.app.present import present_record
    from orchestrator.app.root import App
    from orchestrator.cli.tasks.carry_out import carry_out
    from orchestrator.cli.terminal.say import say

    app = App(tell=say)
    record = present_record(app, app.choose_run(run))
    plan = stop_plan(app, record, task, now=now)
    killed = " and ".join(task) or "the command"
    question = f"Kill {killed} of {record.run_id} without a checkpoint?"
    carry_out(app, record.spec, plan, question=question, dry_run=dry_run, yes=yes, as_json=json)


@command("sync-code")
def sync_code(_context: Context, *, run: str | None, restart: bool, reread: bool, json: bool) -> None:
    """Update the code on the machine to the laptop's.

    If nothing has changed, nothing is sent.

    Examples:
      kedge sync-code
      kedge sync-code --restart
    """
    from orchestrator.app.present import present_record
    from orchestrator.app.root import App
    from orchestrator.cli.terminal.say import say

    app = App(tell=say)
    record = present_record(app, app.choose_run(run)) if restart else app.choose_run(run)
    if not restart:
        from orchestrator.cli.tasks.sending import send_and_say
        from orchestrator.core.errors import BadRequestError

        if reread:
            raise BadRequestError("--reread starts the command again, so it needs --restart", fix="add --restart")

        send_and_say(app, record, as_json=json)
        return
    from orchestrator.app.acting import restart_plan
    from orchestrator.app.launch.changing import change_command, with_changes
    from orchestrator.cli.tasks.carry_out import carry_out

    changed, found = change_command(app, record, reread=reread)
    plan = with_changes(restart_plan(app, changed), record, changed)
    carry_out(app, changed.spec, plan, findings=found, yes=True, as_json=json)


@command("sync-data")
def sync_data(_context: Context, *, run: str | None, delete: bool, dry_run: bool, json: bool) -> None:
    """Send the job's data folders to the machine.

    Files that are there already aren't sent again.

    Examples:
      kedge sync-data
      kedge sync-data --delete
    """
    from orchestrator.app.acting import sync_data_plan
    from orchestrator.app.root import App
    from orchestrator.cli.tasks.carry_out import carry_out
    from orchestrator.cli.terminal.say import say

    app = App(tell=say)
    record = app.choose_run(run)
    plan = sync_data_plan(app, record, delete=delete)
    carry_out(app, record.spec, plan, dry_run=dry_run, yes=True, as_json=json)
