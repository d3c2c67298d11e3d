"""The command that proves that kedge works in a user's own account: selftest."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from invoke.context import Context

from orchestrator.cli.commands import command
from orchestrator.cli.terminal.signals import waiting_signals

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console
    from rich.status import Status

    from orchestrator.adapters.jobfile.overrides import Overrides
    from orchestrator.app.selftest.life import Selftest
    from orchestrator.core.plan import Plan
    from orchestrator.core.selftest import Tried


@command("selftest")
def selftest(_context: Context, *, overrides: Overrides, yes: bool, json: bool) -> None:
    """Test a run's whole life on the cheapest machine.

    It creates a machine, trains, stops, resumes, fetches, ends the machine, and looks for leftovers. It spends real
    money, at most the budget. It writes kedge-selftest.json, without secrets, for bug reports. It exits with 1 if a
    check failed, with 2, 3 or 4 if nothing could be rented, and with 5 if something may still bill.

    Examples:
      kedge selftest
      kedge selftest --provider aws --gpu t4 --yes
      kedge selftest --provider amd
    """
    from orchestrator.app.root import App
    from orchestrator.app.selftest.life import Selftest, selftest_spec
    from orchestrator.cli.drawing import plans
    from orchestrator.cli.terminal.ask import confirm
    from orchestrator.cli.terminal.console import make_console

    app = App()
    console = make_console(stderr=json)
    if app.settings.selftest_seconds:
        overrides = overrides.adding("--env", "envs", [f"TRAINING_SECONDS={app.settings.selftest_seconds}"])

    report = _report_path()
    screen = _Screen(console)
    with selftest_spec(app, overrides) as spec:

        def agree(plan: Plan) -> None:
            plans.print_plan(console, spec, plan)
            confirm("Go ahead?", yes=yes)

        test = Selftest(app=app, spec=spec, agree=agree, began=screen.began, ended=screen.ended)
        try:
            test.run()
        finally:
            screen.rest()
            if test.tried:
                _conclude(test, report, as_json=json)
    if test.error is not None:
        raise test.error


class _Screen:
    """Shows each check while it runs, and then its result.

    The reader may close the terminal at any time; that must not keep the test from ending its machine.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._shown: Status | None = None

    def began(self, name: str) -> None:
        from orchestrator.app.selftest.life import CUT_OFF

        with suppress(OSError):
            if name == CUT_OFF:
                self._console.print("Ending the machine; an interruption would leave it billing.")
            with waiting_signals():
                self._shown = self._console.status(f"{name} ...")
                self._shown.start()

    def ended(self, line: Tried) -> None:
        mark = {"ok": "ok", "failed": "!!"}[line.verdict]
        self.rest()
        with suppress(OSError):
            self._console.print(f"{mark}  {line.name:<22} {line.seconds:6.1f} s  {line.found}", markup=False)

    def rest(self) -> None:
        """Stop showing what is being done."""
        shown, self._shown = self._shown, None
        with suppress(OSError), waiting_signals():
            if shown:
                shown.stop()


def _report_path() -> Path:
    """Return the report's path; check it before anything is rented, so that a missing report can't hide anything.

    Raises:
        BadRequestError: it can't be written.
    """
    import os
    from pathlib import Path

    from orchestrator.adapters.host.files import require_no_link
    from orchestrator.app.selftest.report import REPORT
    from orchestrator.core.errors import BadRequestError

    path = Path.cwd() / REPORT
    require_no_link(path, within=path.parent)
    if not os.access(path if path.exists() else path.parent, os.W_OK) or path.is_dir():
        raise BadRequestError(f"{path} can't be written", fix="run the self-test in a folder of your own")
    return path


def _conclude(test: Selftest, path: Path, *, as_json: bool) -> None:
    """Write the report, and print what the test has cost; a failure to write it doesn't change the verdict."""
    from orchestrator.app.selftest.report import write_report
    from orchestrator.cli.terminal.console import make_console
    from orchestrator.core.values.cost import spent_usd
    from orchestrator.core.values.units import format_usd

    ledger, run_id = test.app.ledger, test.spec.run_id
    cost = spent_usd(ledger.rentals(run_id), test.app.clock.now())
    try:
        write_report(path, test, ledger.machines(run_id), cost, test.app.settings.environ)
        make_console(stderr=as_json).print(f"Cost: {format_usd(cost)}. Report: {path.name}", markup=False)
        if as_json:
            print(path.read_text(encoding="utf-8"), end="")
    except OSError as err:
        with suppress(OSError):
            make_console(stderr=True).print(f"Cost: {format_usd(cost)}. There is no report: {err}", markup=False)
