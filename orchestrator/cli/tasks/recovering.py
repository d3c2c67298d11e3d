"""The command that replaces lost machines: recover."""

from __future__ import annotations

from typing import TYPE_CHECKING

from invoke.context import Context

from orchestrator.cli.commands import command

if TYPE_CHECKING:
    from orchestrator.app.root import App
    from orchestrator.core.ledger import RunRecord


@command("recover")
def recover(_context: Context, *, install: bool, uninstall: bool, json: bool) -> None:
    """Replace lost machines of runs that were launched with --recover.

    Each run resumes from its last complete checkpoint, within its budget. `launch --recover` does the same while it
    runs; this command is for runs that nobody follows. It doesn't ask, because --recover was the confirmation.

    Examples:
      kedge launch --provider aws --gpu t4 --spot --recover --detach --yes
      kedge recover --install
      kedge recover
    """
    from orchestrator.app.root import App
    from orchestrator.cli.drawing import render
    from orchestrator.core.errors import BadRequestError

    app = App()
    if install or uninstall:
        if json:
            raise BadRequestError("--install and --uninstall have no --json", fix="leave --json out")
        from orchestrator.adapters.host.timer import RECOVER, install_timer, remove_timer

        render.said((install_timer if install else remove_timer)(app.settings, RECOVER))
        return
    if _recover_all(app, as_json=json):
        raise SystemExit(1)


def _recover_all(app: App, *, as_json: bool) -> int:
    """Recover the runs one by one, and return how many failed; a failure must not stop the others."""
    from orchestrator.app.launch.recovering import recoverable_runs
    from orchestrator.cli.drawing import render
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
    from orchestrator.app.launch.recovering import is_lost, recovered_spec, recovery_plan
    from orchestrator.cli.drawing import render
    from orchestrator.cli.tasks.carry_out import carry_out

    if is_lost(app, record, render.problem if as_json else render.said):
        spec = recovered_spec(app, record)
        carry_out(app, spec, recovery_plan(app, spec), yes=True, as_json=as_json, answer=recovered.append)
    elif not as_json:
        render.said(f"Run {record.run_id} needs no new machine.")
