"""Tasks that act on a run that is there: start, stop, sync, fetch, logs, ssh, exec, attach, teardown."""

from __future__ import annotations

from invoke.context import Context
from invoke.exceptions import Exit
from invoke.tasks import task

_RUN = "the run; the only live one of this folder's job when left out"
_YES = "don't ask"
_DRY_RUN = "print the plan and do nothing"
_ADMIN = "as the user who has sudo on the machine, not as the job's"
_JSON = "print one JSON document for scripts"
COMMAND = "run this command from now on, whether there is a checkpoint or not"
REREAD = "take `run` and `resume` from the job file as it is now"


@task(
    help={"run": _RUN, "command": COMMAND, "reread": REREAD, "dry-run": _DRY_RUN, "json": _JSON}, auto_shortflags=False
)
def start(
    _context: Context,
    run: str | None = None,
    command: str | None = None,
    reread: bool = False,
    dry_run: bool = False,
    json: bool = False,
) -> None:
    """Start the command again, on the run's machine.

    It goes on from its newest checkpoint.

    Examples:
      kedge start
      kedge start --reread
      kedge start --command "python train.py --resume out/ckpt.pt"
    """
    from orchestrator.app.acting import start_plan
    from orchestrator.app.changing import change_command, with_changes
    from orchestrator.app.root import App
    from orchestrator.cli.carry_out import carry_out
    from orchestrator.cli.say import say

    app = App(tell=say)
    record = app.choose_run(run)
    changed, found = change_command(app, record, command=command, reread=reread)
    plan = with_changes(start_plan(app, changed), record, changed)
    carry_out(app, changed.spec, plan, findings=found, dry_run=dry_run, yes=True, as_json=json)


@task(
    help={
        "run": _RUN,
        "now": "kill it at once, without a checkpoint",
        "dry-run": _DRY_RUN,
        "yes": _YES,
        "json": _JSON,
    },
    auto_shortflags=False,
)
def stop(
    _context: Context,
    run: str | None = None,
    now: bool = False,
    dry_run: bool = False,
    yes: bool = False,
    json: bool = False,
) -> None:
    """Stop the command; the machine stays, and goes on costing money.

    The command checkpoints and exits.

    Examples:
      kedge stop
      kedge stop digits-1121-k3f9 --now --yes
    """
    from orchestrator.app.acting import stop_plan
    from orchestrator.app.root import App
    from orchestrator.cli.carry_out import carry_out
    from orchestrator.cli.say import say

    app = App(tell=say)
    record = app.choose_run(run)
    plan = stop_plan(app, record, now=now)
    question = f"Kill the command of {record.run_id} without a checkpoint?"
    carry_out(app, record.spec, plan, question=question, dry_run=dry_run, yes=yes, as_json=json)


@task(
    help={
        "run": _RUN,
        "restart": "restart the command on the new code, from its newest checkpoint",
        "reread": f"with --restart: {REREAD}",
        "json": _JSON,
    },
    auto_shortflags=False,
)
def sync_code(
    _context: Context, run: str | None = None, restart: bool = False, reread: bool = False, json: bool = False
) -> None:
    """Bring the machine's code to the laptop's state.

    Nothing is sent when nothing has changed.

    Examples:
      kedge sync-code
      kedge sync-code --restart
    """
    from orchestrator.app.root import App
    from orchestrator.cli.say import say

    app = App(tell=say)
    record = app.choose_run(run)
    if not restart:
        from orchestrator.cli.sending import send_and_say
        from orchestrator.core.errors import BadRequestError

        if reread:
            raise BadRequestError("--reread starts the command again, so it needs --restart", fix="add --restart")

        send_and_say(app, record, as_json=json)
        return
    from orchestrator.app.acting import restart_plan
    from orchestrator.app.changing import change_command, with_changes
    from orchestrator.cli.carry_out import carry_out

    changed, found = change_command(app, record, reread=reread)
    plan = with_changes(restart_plan(app, changed), record, changed)
    carry_out(app, changed.spec, plan, findings=found, yes=True, as_json=json)


@task(
    help={
        "run": _RUN,
        "delete": "remove on the machine what isn't in the folder here",
        "dry-run": _DRY_RUN,
        "json": _JSON,
    },
    auto_shortflags=False,
)
def sync_data(
    _context: Context, run: str | None = None, delete: bool = False, dry_run: bool = False, json: bool = False
) -> None:
    """Bring the job's data folders to the machine.

    What is there already isn't sent again.

    Examples:
      kedge sync-data
      kedge sync-data --delete
    """
    from orchestrator.app.acting import sync_data_plan
    from orchestrator.app.root import App
    from orchestrator.cli.carry_out import carry_out
    from orchestrator.cli.say import say

    app = App(tell=say)
    record = app.choose_run(run)
    plan = sync_data_plan(app, record, delete=delete)
    carry_out(app, record.spec, plan, dry_run=dry_run, yes=True, as_json=json)


@task(
    help={
        "run": "the run; the newest one here that has results when left out",
        "to": "the folder to copy to; kedge-results/RUN by default",
        "dry-run": _DRY_RUN,
        "json": _JSON,
    },
    auto_shortflags=False,
)
def fetch(
    _context: Context, run: str | None = None, to: str | None = None, dry_run: bool = False, json: bool = False
) -> None:
    """Copy the run's results home and verify the copy.

    They come from its machine, else from the object store.

    Examples:
      kedge fetch
      kedge fetch digits-1121-k3f9 --to ./best
    """
    from orchestrator.app.acting import fetch_plan
    from orchestrator.app.looking import newest_with_results
    from orchestrator.app.root import App
    from orchestrator.cli.carry_out import carry_out
    from orchestrator.cli.say import say

    app = App(tell=say)
    record = None if run else newest_with_results(app)
    if record is not None:
        say(f"run {record.run_id} is the newest one here that has results")
    record = record or app.choose_run(run, live_only=False)
    carry_out(app, record.spec, fetch_plan(app, record, to), dry_run=dry_run, yes=True, as_json=json)


@task(
    help={
        "run": _RUN,
        "follow": "go on as lines are written; Ctrl-C leaves",
        "lines": "how many lines to begin with",
        "raw": "the bytes that the command printed, for a pipe or a file",
    },
    auto_shortflags=False,
)
def logs(_context: Context, run: str | None = None, follow: bool = False, lines: int = 100, raw: bool = False) -> None:
    """Print the command's log.

    Examples:
      kedge logs -f
      kedge logs digits-1121-k3f9 --lines 1000
      kedge logs --raw >run.log
    """
    from orchestrator.app.root import App
    from orchestrator.cli.logs import print_log
    from orchestrator.cli.say import say

    app = App(tell=say)
    print_log(app, app.choose_run(run, live_only=False), follow=follow, lines=lines, raw=raw)


@task(help={"run": _RUN}, auto_shortflags=False)
def attach(_context: Context, run: str | None = None) -> None:
    """Attach this terminal to the command's tmux or screen session.

    The run goes on when you leave: Ctrl-b d leaves tmux, Ctrl-a d leaves screen. Ctrl-C asks before it reaches the
    command.

    Examples:
      kedge attach
    """
    from orchestrator.app.root import App
    from orchestrator.cli.say import say
    from orchestrator.cli.terminal import how_to_leave, run_in_terminal

    app = App(tell=say)
    record = app.choose_run(run)
    machine = app.machine(record)
    say(how_to_leave(record.spec.job.supervisor.kind, app.settings.environ))
    raise Exit(code=run_in_terminal(app, machine, [machine.agent, "attach"], tty=True))


@task(help={"run": _RUN, "admin": _ADMIN}, auto_shortflags=False)
def ssh(context: Context, run: str | None = None, admin: bool = False) -> None:
    """Open a shell on the run's machine, as the job's user.

    What follows `--` are options of OpenSSH's own.

    Examples:
      kedge ssh
      kedge ssh --admin
      kedge ssh digits-1121-k3f9 -- -L 8081:localhost:8081
    """
    from orchestrator.app.root import App
    from orchestrator.cli.say import say
    from orchestrator.cli.terminal import run_in_terminal
    from orchestrator.core.errors import BadRequestError

    options = list(context["passthrough"])
    if options and not options[0].startswith("-"):
        raise BadRequestError(f"{options[0]!r} is no option of ssh", fix="to run a command: `kedge exec -- COMMAND`")
    app = App(tell=say)
    machine = app.machine(app.choose_run(run))
    raise Exit(code=run_in_terminal(app, machine, [], tty=True, admin=admin, options=options))


@task(name="exec", help={"run": _RUN, "admin": _ADMIN}, auto_shortflags=False)
def exec_(context: Context, run: str | None = None, admin: bool = False) -> None:
    """Run a command on the machine, and exit with its exit code.

    It runs as the job's user. What follows `--` is passed on as it is.

    Examples:
      kedge exec -- nvidia-smi
      kedge exec digits-1121-k3f9 -- ls -l "a file with spaces"
    """
    from orchestrator.app.root import App
    from orchestrator.cli.say import say
    from orchestrator.cli.terminal import run_in_terminal
    from orchestrator.core.errors import BadRequestError

    words = list(context["passthrough"])
    if not words:
        raise BadRequestError("there is no command to run", fix="write it after --, as in `kedge exec -- nvidia-smi`")
    app = App(tell=say)
    raise Exit(code=run_in_terminal(app, app.machine(app.choose_run(run)), words, tty=False, admin=admin))


@task(
    help={
        "run": _RUN,
        "no-fetch": "leave the results; they end with the machine",
        "dry-run": _DRY_RUN,
        "yes": _YES,
        "json": _JSON,
    },
    auto_shortflags=False,
)
def teardown(
    _context: Context,
    run: str | None = None,
    no_fetch: bool = False,
    dry_run: bool = False,
    yes: bool = False,
    json: bool = False,
) -> None:
    """End a run: stop, fetch the results, destroy the machine.

    It waits until the provider says that the machine is gone.

    Examples:
      kedge teardown
      kedge teardown digits-1121-k3f9 --yes
      kedge teardown --dry-run
    """
    from orchestrator.app.root import App
    from orchestrator.cli.carry_out import tear_down

    app = App()
    record = app.choose_run(run, live_only=False)
    tear_down(app, record, fetch=not no_fetch, dry_run=dry_run, yes=yes, as_json=json)
