"""The task that gives runs another machine: recover."""

from __future__ import annotations

from typing import TYPE_CHECKING

from invoke.context import Context
from invoke.tasks import task

if TYPE_CHECKING:
    from orchestrator.app.root import App
    from orchestrator.core.ledger import RunRecord


@task(
    help={
        "install": "let a timer of systemd's (of your user) give this command every minute",
        "uninstall": "remove that timer",
        "json": "print one JSON document for scripts",
    },
    auto_shortflags=False,
)
def recover(_context: Context, install: bool = False, uninstall: bool = False, json: bool = False) -> None:
    """Give runs that have lost their machine another one.

    It is for runs that were launched with --recover. The run goes on from its last complete checkpoint, within its
    budget. `launch --recover` does the same while it runs; this is for runs that nobody follows. Nothing is asked:
    --recover was the yes.

    Examples:
      kedge launch --provider aws --gpu t4 --spot --recover --detach --yes
      kedge recover --install
      kedge recover
    """
    from orchestrator.app.root import App
    from orchestrator.cli import render
    from orchestrator.core.errors import BadRequestError

    app = App()
    if install or uninstall:
        if json:
            raise BadRequestError("--json is about runs, not about the timer", fix="leave it out")
        from orchestrator.adapters.timer import install_timer, remove_timer

        render.said(install_timer(app.settings) if install else remove_timer(app.settings))
        return
    if _recover_all(app, as_json=json):
        raise SystemExit(1)


def _recover_all(app: App, *, as_json: bool) -> int:
    """Look after each run by itself, and return how many couldn't be helped: one must not keep others waiting."""
    from orchestrator.app.recovering import recoverable_runs
    from orchestrator.cli import render
    from orchestrator.core.errors import ConflictError, KedgeError

    failed = 0
    recovered: list[object] = []
    runs = recoverable_runs(app)
    for record in runs:
        try:
            _recover(app, record, recovered, as_json=as_json)
        except ConflictError as err:
            render.problem(f"Run {record.run_id}: {err.what}")
        except KedgeError as err:
            failed += 1
            render.problem(f"Run {record.run_id}: {err}")
    if as_json:
        render.print_json(recovered)
    elif not runs:
        render.said("No live run was launched with --recover.")
    return failed


def _recover(app: App, record: RunRecord, recovered: list[object], *, as_json: bool) -> None:
    from orchestrator.app.recovering import is_lost, recovered_spec, recovery_plan
    from orchestrator.cli import render
    from orchestrator.cli.carry_out import carry_out

    if is_lost(app, record, render.problem if as_json else render.said):
        spec = recovered_spec(app, record)
        carry_out(app, spec, recovery_plan(app, spec), yes=True, as_json=as_json, answer=recovered.append)
    elif not as_json:
        render.said(f"Run {record.run_id} needs no other machine.")
