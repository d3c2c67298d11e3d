"""The life of a self-test's run: launches the cheapest machine, acts on it through the use cases, and ends it.

Whatever fails, the machine is ended and its provider swept.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.adapters.host.resources import resource
from orchestrator.adapters.jobfile.overrides import Overrides
from orchestrator.app.acting import ended_spec, stop_plan, teardown_plan
from orchestrator.app.checking import check_provider
from orchestrator.app.launch.launching import new_launch, observe_and_plan
from orchestrator.app.reaping import look_everywhere
from orchestrator.app.root import App
from orchestrator.app.selftest.probes import await_step, check_results, compare_code, give_notice, read_guard, try_pins
from orchestrator.core.actions import Action, FollowCommand
from orchestrator.core.checkup import OFFERS, QUOTA, Verdict
from orchestrator.core.errors import KedgeError, RunFailedError, StillBillingError
from orchestrator.core.job import LaunchSpec
from orchestrator.core.ledger import RunRecord, RunStage
from orchestrator.core.plan import Plan
from orchestrator.core.protocol.report import RunState
from orchestrator.core.selftest import Tried, check_name
from orchestrator.core.values.units import format_usd
from orchestrator.engine.events import ActionBegan, ActionEnded, Event

_STOPPED_AFTER = 2
"""Steps of the training before it is stopped; it has twelve in all."""

CUT_OFF = "teardown, cut off"
"""The name of the check that ends the machine after a failure or an interruption."""

Found = Callable[[str], None]


@contextmanager
def selftest_spec(app: App, overrides: Overrides) -> Iterator[LaunchSpec]:
    """Unpack the bundled job, read it like any job file, and remove it at the end with its results.

    Raises:
        BadRequestError: a flag that can't be read.
    """
    with tempfile.TemporaryDirectory(prefix="kedge-selftest-") as folder:
        home = Path(folder).resolve() / "selftest"
        # A copy, because git may ignore files in the place where kedge is installed.
        shutil.copytree(resource("infra", "selftest"), home)
        yield new_launch(app, str(home / "kedge.yaml"), None, overrides)


@dataclass(slots=True)
class Selftest:
    """One self-test.

    Attributes:
        spec: of its run.
        agree: asks the user to confirm a plan; raises if the user doesn't.
        began: called when a check begins.
        ended: called when a check has ended.
        tried: the checks so far.
        error: what to raise in the end: something that may bill, else the first failure.
        completed: nothing was skipped because of a failure or an interruption.
    """

    app: App
    spec: LaunchSpec
    agree: Callable[[Plan], None]
    began: Callable[[str], None]
    ended: Callable[[Tried], None]
    tried: list[Tried] = field(default_factory=list)
    error: KedgeError | None = None
    completed: bool = False

    def run(self) -> None:
        """Run all checks; `tried` and `error` hold the result.

        Raises:
            BadRequestError: the user didn't confirm; nothing was done.
            KeyboardInterrupt: it was interrupted; what it had created was ended.
            StillBillingError: ending that was interrupted, too.
        """
        plan = self._plan()
        if plan is None:
            return
        self.agree(plan)
        try:
            with suppress(KedgeError):
                self._live(plan)
        finally:
            self._end()

    def _plan(self) -> Plan | None:
        """Check the account and plan the launch; None if either fails."""
        with suppress(KedgeError):
            with self._trying("permissions") as found:
                found(self._look_at_account())
            with self._trying("offer") as found:
                plan = observe_and_plan(self.app, self.spec, follow=False)
                found(f"at most {format_usd(plan.worst_usd)}")
            return plan
        return None

    def _live(self, plan: Plan) -> None:
        """Run through a run's life.

        Raises:
            KedgeError: the first failure.
        """
        self._carry_out(plan)
        record = self._record
        with self._trying("SSH with pinned keys") as found:
            found(try_pins(self.app, record))
        with self._trying("deadline guard") as found:
            found(read_guard(self.app, record))
        with self._trying("code on the machine") as found:
            found(compare_code(self.app, record))
        with self._trying("first steps") as found:
            found(await_step(self.app, record, _STOPPED_AFTER, start=1))
        self._carry_out(stop_plan(self.app, record))
        self._carry_out(observe_and_plan(self.app, self.spec, follow=False))
        with self._trying("resume") as found:
            found(await_step(self.app, record, _STOPPED_AFTER + 1, start=2))
        with self._trying("notice") as found:
            found(give_notice(self.app, record))
        self._carry_out(observe_and_plan(self.app, self.spec, follow=True))
        with self._trying("right results") as found:
            found(check_results(Path(self.spec.results)))
        self.completed = True

    def _end(self) -> None:
        """End what is left, and search the whole account for it, whatever has failed.

        Raises:
            StillBillingError: it was interrupted.
        """
        try:
            with suppress(KedgeError):
                self._tear_down()
            with suppress(KedgeError), self._trying("store") as found:
                found(self._empty_store())
            with suppress(KedgeError), self._trying("sweep") as found:
                found(self._sweep())
        except KeyboardInterrupt as err:
            self.error = StillBillingError(
                "something may still be billing", why="the end of the self-test was interrupted", fix=self._way_out
            )
            raise self.error from err

    def _empty_store(self) -> str:
        """Remove the run's objects and its data from the object store."""
        world = self.app.world(self.spec.provider)
        if world.store is not None:
            world.store.remove(self.spec.run_id)
        for mount in self.spec.job.data:
            if world.data_stage is not None:
                world.data_stage.remove_data(mount)
        return "nothing of it is left there" if world.store else "there is none"

    @property
    def _way_out(self) -> str:
        return f"`kedge teardown {self.spec.run_id}`, then `kedge reap --provider {self.spec.provider}`"

    def _tear_down(self) -> None:
        """End what is left after a failure or an interruption."""
        if self.app.ledger.run(self.spec.run_id) is None or self._record.stage is RunStage.ENDED:
            return
        with self._trying(CUT_OFF) as found:
            self.app.reconcile(self._record)
            plan = teardown_plan(self.app, self._record, fetch=False)
            if plan.actions:
                self.app.apply(ended_spec(self._record), plan, lambda _event: None)
            self.app.end(self.spec.run_id)
            found("gone")

    def _carry_out(self, plan: Plan) -> None:
        """Apply a plan; each of its actions is a separate check.

        Raises:
            KedgeError: an action, or the training, failed.
        """
        watch = _ActionWatch(self)
        try:
            progress = self.app.apply(self.spec, plan, watch)
        except BaseException as err:
            watch.fail(err)
            raise
        follows = any(isinstance(action, FollowCommand) for action in plan.actions)
        if follows and progress.command.state is not RunState.SUCCEEDED:
            failed = RunFailedError(f"the training is {progress.command.state}", why=progress.command.reason)
            self.note("training", 0.0, failed)
            raise failed

    def _look_at_account(self) -> str:
        checks = check_provider(self.app, self.spec.provider, self.spec.resources)
        told_by_plan = (OFFERS, QUOTA)
        bad = [
            f"{check.name}: {check.found}"
            for check in checks
            if check.verdict is Verdict.FAILED and check.name not in told_by_plan
        ]
        if bad:
            fix = f"`kedge doctor --provider {self.spec.provider}` says how to fix each of them"
            raise KedgeError("; ".join(bad), fix=fix)
        weak = [check.name for check in checks if check.verdict is Verdict.WARNING]
        return "all there" + (f"; `kedge doctor` warns of: {', '.join(weak)}" if weak else "")

    def _sweep(self) -> str:
        """Search the whole account for anything of this run that bills.

        Raises:
            StillBillingError: something may.
        """
        seen = look_everywhere(self.app, [self.spec.provider], everyone=False)
        mine = [finding.what for finding in seen.findings if finding.bills and finding.run_id == self.spec.run_id]
        live = [machine.id for machine in self.app.ledger.machines(self.spec.run_id, live_only=True)]
        unseen = [f"what there is at {each.provider} ({each.why})" for each in seen.unseen if each.matters]
        if mine or live or unseen:
            raise StillBillingError(
                "something may still be billing",
                why=", ".join(dict.fromkeys((*mine, *live, *unseen))),
                fix=self._way_out,
            )
        return "nothing of it is left"

    @contextmanager
    def _trying(self, name: str) -> Iterator[Found]:
        """Record how one check went, and how long it took."""
        self.began(name)
        begun = self.app.clock.now()
        said: list[str] = []
        try:
            yield said.append
        except BaseException as err:
            self.note(name, (self.app.clock.now() - begun).total_seconds(), err)
            raise
        self.note(name, (self.app.clock.now() - begun).total_seconds(), "; ".join(said))

    def note(self, name: str, seconds: float, found: str | BaseException) -> None:
        """Add a line, and keep the error that is to be raised in the end."""
        failed = isinstance(found, BaseException)
        verdict = Verdict.FAILED if failed else Verdict.OK
        line = Tried(name=name, verdict=verdict, seconds=seconds, found=_words(found) if failed else str(found))
        self.tried.append(line)
        self.ended(line)
        if isinstance(found, KedgeError) and (self.error is None or isinstance(found, StillBillingError)):
            self.error = found

    @property
    def _record(self) -> RunRecord:
        return self.app.named_run(self.spec.run_id)


class _ActionWatch:
    """Turns the engine's events into checks: one for each action of a plan."""

    def __init__(self, test: Selftest) -> None:
        self._test = test
        self._action: Action | None = None
        self._begun = test.app.clock.now()

    def __call__(self, event: Event) -> None:
        match event:
            case ActionBegan(action=action):
                self._action, self._begun = action, self._test.app.clock.now()
                self._test.began(check_name(action))
            case ActionEnded(note=note):
                self._close(note)
            case _:
                pass

    def fail(self, err: BaseException) -> None:
        """Record the action at which a plan failed."""
        self._close(err)

    def _close(self, found: str | BaseException) -> None:
        if self._action is not None:
            took = self._test.app.clock.now() - self._begun
            self._test.note(check_name(self._action), took.total_seconds(), found)
        self._action = None


def _words(err: object) -> str:
    if isinstance(err, KedgeError):
        return "; ".join(part for part in (err.what, err.why, f"fix: {err.fix}" if err.fix else "") if part)
    return "interrupted" if isinstance(err, KeyboardInterrupt) else f"{type(err).__name__}: {err}"
