"""Commands that act on an existing run: start, stop, sync, fetch, logs, ssh, exec, attach, teardown."""

from __future__ import annotations

from invoke.context import Context
from invoke.exceptions import Exit

from orchestrator.cli.commands import command


@command("start")
def start(_context: Context, *, run: str | None, command: str | None, reread: bool, dry_run: bool, json: bool) -> None:
    """Start the command again, on the run's machine.

    It resumes from its newest checkpoint.

    Examples:
      kedge start
      kedge start --reread
      kedge start --command "python train.py --resume out/ckpt.pt"
    """
    from orchestrator.app.acting import start_plan
    from orchestrator.app.launch.changing import change_command, with_changes
    from orchestrator.app.root import App
    from orchestrator.cli.tasks.carry_out import carry_out
    from orchestrator.cli.terminal.say import say

    app = App(tell=say)
    record = app.choose_run(run)
    changed, found = change_command(app, record, command=command, reread=reread)
    plan = with_changes(start_plan(app, changed), record, changed)
    carry_out(app, changed.spec, plan, findings=found, dry_run=dry_run, yes=True, as_json=json)


@command("stop")
def stop(_context: Context, *, run: str | None, now: bool, dry_run: bool, yes: bool, json: bool) -> None:
    """Stop the command; the machine stays and keeps costing money.

    The command checkpoints and exits.

    Examples:
      kedge stop
      kedge stop digits-1121-k3f9 --now --yes
    """
    from orchestrator.app.acting import stop_plan
    from orchestrator.app.root import App
    from orchestrator.cli.tasks.carry_out import carry_out
    from orchestrator.cli.terminal.say import say

    app = App(tell=say)
    record = app.choose_run(run)
    plan = stop_plan(app, record, now=now)
    question = f"Kill the command of {record.run_id} without a checkpoint?"
    carry_out(app, record.spec, plan, question=question, dry_run=dry_run, yes=yes, as_json=json)


@command("sync-code")
def sync_code(_context: Context, *, run: str | None, restart: bool, reread: bool, json: bool) -> None:
    """Update the code on the machine to the laptop's.

    If nothing has changed, nothing is sent.

    Examples:
      kedge sync-code
      kedge sync-code --restart
    """
    from orchestrator.app.root import App
    from orchestrator.cli.terminal.say import say

    app = App(tell=say)
    record = app.choose_run(run)
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


@command("fetch")
def fetch(_context: Context, *, run: str | None, to: str | None, dry_run: bool, json: bool) -> None:
    """Copy the run's results to this computer and verify the copy.

    They come from its machine, else from the object store.

    Examples:
      kedge fetch
      kedge fetch digits-1121-k3f9 --to ./best
    """
    from orchestrator.app.acting import fetch_plan
    from orchestrator.app.looking import newest_with_results
    from orchestrator.app.root import App
    from orchestrator.cli.tasks.carry_out import carry_out
    from orchestrator.cli.terminal.say import say

    app = App(tell=say)
    record = None if run else newest_with_results(app)
    if record is not None:
        say(f"run {record.run_id} is the newest one here that has results")
    record = record or app.choose_run(run, live_only=False)
    carry_out(app, record.spec, fetch_plan(app, record, to), dry_run=dry_run, yes=True, as_json=json)


@command("logs")
def logs(_context: Context, *, run: str | None, follow: bool, lines: int, raw: bool) -> None:
    """Print the command's log.

    Examples:
      kedge logs -f
      kedge logs digits-1121-k3f9 --lines 1000
      kedge logs --raw >run.log
    """
    from orchestrator.app.root import App
    from orchestrator.cli.tasks.logs import print_log
    from orchestrator.cli.terminal.say import say

    app = App(tell=say)
    print_log(app, app.choose_run(run, live_only=False), follow=follow, lines=lines, raw=raw)


@command("attach")
def attach(_context: Context, *, run: str | None) -> None:
    """Attach this terminal to the command's tmux or screen session.

    Ctrl-b d leaves tmux, Ctrl-a d leaves screen, and the run goes on. Ctrl-C asks before it stops the command.

    Examples:
      kedge attach
    """
    from orchestrator.app.root import App
    from orchestrator.cli.terminal.openssh import how_to_leave, run_in_terminal
    from orchestrator.cli.terminal.say import say

    app = App(tell=say)
    record = app.choose_run(run)
    machine = app.machine(record)
    say(how_to_leave(record.spec.job.supervisor.kind, app.settings.environ))
    raise Exit(code=run_in_terminal(app, machine, [machine.agent, "attach"], tty=True))


@command("ssh")
def ssh(context: Context, *, run: str | None, admin: bool) -> None:
    """Open a shell on the run's machine, as the job's user.

    It passes what follows `--` to OpenSSH as options.

    Examples:
      kedge ssh
      kedge ssh --admin
      kedge ssh digits-1121-k3f9 -- -L 8081:localhost:8081
    """
    from orchestrator.app.root import App
    from orchestrator.cli.terminal.openssh import run_in_terminal
    from orchestrator.cli.terminal.say import say
    from orchestrator.core.errors import BadRequestError

    options = list(context["passthrough"])
    if options and not options[0].startswith("-"):
        raise BadRequestError(f"{options[0]!r} is no option of ssh", fix="to run a command: `kedge exec -- COMMAND`")
    app = App(tell=say)
    machine = app.machine(app.choose_run(run))
    raise Exit(code=run_in_terminal(app, machine, [], tty=True, admin=admin, options=options))


@command("exec")
def exec_(context: Context, *, run: str | None, admin: bool) -> None:
    """Run a command on the machine, and exit with its exit code.

    It runs as the job's user. The command is what follows `--`, unchanged.

    Examples:
      kedge exec -- nvidia-smi
      kedge exec digits-1121-k3f9 -- ls -l "a file with spaces"
    """
    from orchestrator.app.root import App
    from orchestrator.cli.terminal.openssh import run_in_terminal
    from orchestrator.cli.terminal.say import say
    from orchestrator.core.errors import BadRequestError

    words = list(context["passthrough"])
    if not words:
        raise BadRequestError("there is no command to run", fix="write it after --, as in `kedge exec -- nvidia-smi`")
    app = App(tell=say)
    raise Exit(code=run_in_terminal(app, app.machine(app.choose_run(run)), words, tty=False, admin=admin))


@command("teardown")
def teardown(_context: Context, *, run: str | None, no_fetch: bool, dry_run: bool, yes: bool, json: bool) -> None:
    """End a run: stop, fetch the results, destroy the machine.

    It waits until the provider confirms that the machine is gone.

    Examples:
      kedge teardown
      kedge teardown digits-1121-k3f9 --yes
      kedge teardown --dry-run
    """
    from orchestrator.app.root import App
    from orchestrator.cli.tasks.carry_out import tear_down

    app = App()
    record = app.choose_run(run, live_only=False)
    tear_down(app, record, fetch=not no_fetch, dry_run=dry_run, yes=yes, as_json=json)
