"""Commands that hand this terminal over to a machine: attach, ssh, exec."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from invoke.context import Context
from invoke.exceptions import Exit

from orchestrator.cli.commands import command

if TYPE_CHECKING:
    from orchestrator.core.ledger import RunRecord
    from orchestrator.core.task import Task


@command("attach")
def attach(_context: Context, *, run: str | None, task: str | None, node: str | None) -> None:
    """Attach this terminal to the command's tmux or screen session.

    Ctrl-b d leaves tmux, Ctrl-a d leaves screen, and the run goes on. Ctrl-C asks before it stops the command.

    Examples:
      kedge attach
      kedge attach --task voxel
      kedge attach --node 1
    """
    from orchestrator.app.present import present_record
    from orchestrator.app.root import App
    from orchestrator.cli.terminal.openssh import how_to_leave, run_in_terminal
    from orchestrator.cli.terminal.say import say
    from orchestrator.core.errors import BadRequestError
    from orchestrator.core.task import choose_tasks

    app = App(tell=say)
    record = present_record(app, app.choose_run(run))
    chosen = choose_tasks(record.run_id, record.spec.job.tasks, [task] if task else [])
    if len(chosen) > 1:
        raise BadRequestError(
            f"run {record.run_id} has several tasks, each with its own session",
            fix=f"name one with --task: {', '.join(each.name for each in chosen)}",
        )
    named = [word for each in chosen if each.name for word in ("--task", each.name)]
    machine = app.machine(record, _choose_node(record, node, chosen))
    say(how_to_leave(record.spec.job.supervisor.kind, app.settings.environ))
    raise Exit(code=run_in_terminal(app, machine, [machine.agent, "attach", *named], tty=True))


@command("ssh")
def ssh(context: Context, *, run: str | None, node: str | None, admin: bool) -> None:
    """Open a shell on the run's machine, as the job's user.

    Of several machines, it is the first. What follows `--` is passed to OpenSSH as options.

    Examples:
      kedge ssh
      kedge ssh --admin
      kedge ssh digits-1121-k3f9 --node 2
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
    record = app.choose_run(run)
    machine = app.machine(record, _choose_node(record, node))
    raise Exit(code=run_in_terminal(app, machine, [], tty=True, admin=admin, options=options))


@command("exec")
def exec_(
    context: Context, *, run: str | None, task: str | None, node: str | None, all_nodes: bool, admin: bool
) -> None:
    """Run a command on the machine, and exit with its exit code.

    It runs as the job's user, in the working folder. The command is what follows `--`, unchanged. On all nodes it has
    no input, and the exit code is that of the first node on which it failed.

    Examples:
      kedge exec -- nvidia-smi
      kedge exec --task voxel -- env
      kedge exec --node 1 -- df -h
      kedge exec --all-nodes -- nvidia-smi
      kedge exec digits-1121-k3f9 -- ls -l "a file with spaces"
    """
    from orchestrator.app.root import App
    from orchestrator.cli.terminal.openssh import make_client, run_in_terminal
    from orchestrator.cli.terminal.say import say
    from orchestrator.core.errors import BadRequestError
    from orchestrator.core.modes import folders_of
    from orchestrator.core.task import choose_tasks

    words = list(context["passthrough"])
    if not words:
        raise BadRequestError("there is no command to run", fix="write it after --, as in `kedge exec -- nvidia-smi`")
    if task and admin:
        raise BadRequestError("--task and --admin contradict each other", fix="leave one of them out")
    if node is not None and all_nodes:
        raise BadRequestError("--node and --all-nodes contradict each other", fix="leave one of them out")
    app = App(tell=say)
    record = app.choose_run(run)
    if task:
        from orchestrator.app.present import present_record

        record = present_record(app, record)
    chosen = choose_tasks(record.run_id, record.spec.job.tasks, [task] if task else [])
    folder = folders_of(record.spec)[task] if task else None
    number = _choose_node(record, node, chosen if task else ())
    if not all_nodes:
        raise Exit(code=run_in_terminal(app, app.machine(record, number), words, tty=False, admin=admin, task=folder))

    from orchestrator.cli.tasks.everywhere import run_everywhere

    machines = [each for each in app.machines(record) if not task or chosen[0].runs_on(each.rank)]
    raise Exit(code=run_everywhere(machines, lambda each: make_client(app, each, words, admin=admin, task=folder)))


def _choose_node(record: RunRecord, text: str | None, tasks: Sequence[Task] = ()) -> int:
    """Return the number of the chosen node; without a choice the head's.

    Raises:
        BadRequestError: the run has no such node, or the tasks run on the head only.
    """
    from orchestrator.core.errors import BadRequestError
    from orchestrator.core.values.nodes import choose_node

    node = choose_node(record.run_id, record.spec.job.num_nodes, text) if text is not None else 0
    if tasks and not tasks[0].runs_on(node):
        raise BadRequestError(
            f"task {tasks[0].name} does not run on node {node}",
            why="the job file says `nodes: head`",
            fix="leave --node out",
        )
    return node
