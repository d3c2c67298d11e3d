"""Commands that use or end an existing run: extend, fetch, logs, teardown."""

from __future__ import annotations

from invoke.context import Context

from orchestrator.cli.commands import command


@command("extend")
def extend(
    _context: Context,
    *,
    run: str | None,
    by: str | None,
    until: str | None,
    budget: str | None,
    dry_run: bool,
    yes: bool,
    json: bool,
) -> None:
    """Move the deadline of a run's machines, within its budget.

    All guards are moved, or none: the timers on the machines, what ends them from outside, and the ledger. If it is
    interrupted, the same command finishes it, and so does `kedge status`.

    Examples:
      kedge extend 2h
      kedge extend digits-1121-k3f9 --until 18:00
      kedge extend digits-1121-k3f9 1d --budget 60 --yes
    """
    from orchestrator.adapters.jobfile.values.limits import parse_limited_usd
    from orchestrator.app.extending import extension_plan, read_move
    from orchestrator.app.root import App
    from orchestrator.cli.tasks.carry_out import carry_out
    from orchestrator.cli.terminal.say import say
    from orchestrator.core.values.units import is_duration

    if run is not None and by is None and until is None and is_duration(run):
        # `kedge extend 2h`: its only word is no run.
        run, by = None, run
    app = App(tell=say)
    move = read_move(by, until, app.clock.now())
    limit = parse_limited_usd(budget) if budget is not None else None
    spec, plan, found = extension_plan(app, app.choose_run(run), move, limit)
    question = f"Move the deadline of {spec.run_id}?"
    carry_out(app, spec, plan, findings=found, question=question, dry_run=dry_run, yes=yes, as_json=json)


@command("fetch")
def fetch(
    _context: Context,
    *,
    run: str | None,
    task: list[str],
    mode: str | None,
    only: str | None,
    to: str | None,
    dry_run: bool,
    json: bool,
) -> None:
    """Copy the run's results to this computer and verify the copy.

    They come from its machine, else from the object store. What is here already isn't sent again. Of kedge's own
    trainer, older step checkpoints stay in the object store once the run has succeeded; --only all brings them.

    --only takes names and patterns, separated by commas: best (weights with this word in their name, and the
    trainer's), last (each task's newest checkpoint), curves, metrics, plots, samples, logs, onnx, all. A pattern such
    as '*.png' or 'checkpoints/step-*' may begin in any folder. A later fetch brings the rest.

    Examples:
      kedge fetch
      kedge fetch --only best,curves
      kedge fetch --only 'last,*.onnx' --dry-run
      kedge fetch --task voxel
      kedge fetch --mode fast
      kedge fetch digits-1121-k3f9 --to ./best
    """
    from orchestrator.app.acting import fetch_plan
    from orchestrator.app.looking import newest_with_results
    from orchestrator.app.present import present_record
    from orchestrator.app.root import App
    from orchestrator.cli.tasks.carry_out import carry_out
    from orchestrator.cli.terminal.say import say
    from orchestrator.core.protocol.choice import parse_only

    app = App(tell=say)
    record = None if run else newest_with_results(app)
    if record is not None:
        say(f"run {record.run_id} is the newest one here that has results")
    record = present_record(app, record or app.choose_run(run, live_only=False))
    plan = fetch_plan(app, record, to, task, mode=mode, only=parse_only(only), measure=dry_run)
    carry_out(app, record.spec, plan, dry_run=dry_run, yes=True, as_json=json)


@command("logs")
def logs(
    _context: Context,
    *,
    run: str | None,
    task: list[str],
    node: str | None,
    mode: str | None,
    follow: bool,
    lines: int,
    raw: bool,
) -> None:
    """Print the command's log.

    Lines of several machines and tasks are in the order of their time, and begin with the node and the task.

    Examples:
      kedge logs -f
      kedge logs -f --task voxel
      kedge logs -f --node 1
      kedge logs --mode validate
      kedge logs digits-1121-k3f9 --lines 1000
      kedge logs --raw >run.log
    """
    from orchestrator.app.present import present_record
    from orchestrator.app.root import App
    from orchestrator.cli.tasks.logs import print_log
    from orchestrator.cli.terminal.say import say

    app = App(tell=say)
    record = present_record(app, app.choose_run(run, live_only=False))
    print_log(app, record, task, node=node, mode=mode, follow=follow, lines=lines, raw=raw)


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
