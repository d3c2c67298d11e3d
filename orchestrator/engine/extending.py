"""Moves the deadline of all of a run's machines, or of none, and continues a move that was interrupted.

Order: the intent; the ledger, with the later of the two deadlines; outside of the machines (marks, records, guards),
which a provider's API can always move back; each machine's own timer, over SSH; the ledger. A process that is killed in
between leaves machines that end at the old deadline or at the new one, and an open intent; the next command settles it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from orchestrator.core.actions import ExtendDeadline
from orchestrator.core.errors import KedgeError, OverBudgetError
from orchestrator.core.ledger import IntentState, RunStage
from orchestrator.core.values.deadlines import MovedDeadline, MovedRun, RunDeadline
from orchestrator.core.values.structs import decode_json
from orchestrator.core.values.units import cents, format_usd
from orchestrator.engine import agent_client
from orchestrator.engine.events import Events, Remark
from orchestrator.engine.world import World

if TYPE_CHECKING:
    from orchestrator.core.ledger import Intent
    from orchestrator.core.machine import Machine

_Deadline = Callable[[MovedDeadline], datetime]


def extend_deadline(world: World, action: ExtendDeadline, events: Events) -> str:
    """Carry out the action; the caller holds the run's lock.

    Raises:
        KedgeError: it failed, and every deadline is the old one again; or that failed, too, and the intent stays open.
    """
    intent = world.ledger.intend(action.run_id, action, world.clock.now())
    extension = _Extension(world, action, touched=set())
    extension.carry_out(intent)
    for line in extension.remarks:
        events(Remark(text=line))
    return ""


def settle_extension(world: World, intent: Intent, there: Collection[str]) -> str:
    """Finish a move that a killed command has left, or move everything back; the caller holds the run's lock.

    Args:
        world: the run's ports.
        intent: the open intent of an `ExtendDeadline`.
        there: the run's machines that aren't gone.

    Returns:
        What was done, or why it has to be tried again, in one line.
    """
    action = decode_json(intent.payload, ExtendDeadline)
    action = replace(action, machines=tuple(each for each in action.machines if each.machine_id in there))
    # The killed command may have reached any of them.
    extension = _Extension(world, action, touched={each.machine_id for each in action.machines})
    try:
        if (refusal := _find_over_budget(world, action)) is not None:
            extension.undo(intent.id, refusal)
        extension.carry_out(intent.id)
    except KedgeError as err:
        return f"an interrupted move of the deadline: {err.what} ({err.why})"
    return "an interrupted move of the deadline is complete"


@dataclass
class _Extension:
    """One move.

    Attributes:
        touched: machines whose own timer may be the new one.
        remarks: what couldn't be moved, and doesn't have to be.
    """

    world: World
    action: ExtendDeadline
    touched: set[str]
    remarks: list[str] = field(default_factory=list)

    def carry_out(self, intent: int) -> None:
        action = self.action
        self._record(lambda each: max(each.before, each.after), _latest(action.run))
        try:
            self._move_outside(_after)
            self._move_timers(action.machines, _after)
        except KedgeError as err:
            self.undo(intent, err)
        self._record(_after, action.run.after if action.run else None)
        self._close(intent, IntentState.DONE)

    def undo(self, intent: int, cause: KedgeError) -> None:
        """Move everything back, in the opposite order; as much as possible, even if a part of it fails.

        Raises:
            KedgeError: always: the move failed.
        """
        failures: list[KedgeError] = []
        touched = [each for each in self.action.machines if each.machine_id in self.touched]
        for step in (*(lambda each=each: self._move_timers([each], _before) for each in touched), self._move_back):
            try:
                step()
            except KedgeError as err:
                failures.append(err)
        if failures:
            raise _unsettled(self.action, cause, failures) from cause
        self._record(_before, self.action.run.before if self.action.run else None)
        self._close(intent, IntentState.FAILED, cause.what)
        raise KedgeError(
            f"the deadline of run {self.action.run_id} was not moved: {cause.what}",
            why=cause.why or "every deadline is the old one again",
            fix=cause.fix,
        ) from cause

    def _move_back(self) -> None:
        self._move_outside(_before)

    def _move_outside(self, deadline: _Deadline) -> None:
        for each in self.action.machines:
            self.remarks += self.world.provider.move_deadline(each.machine_id, deadline(each))

    def _move_timers(self, machines: Sequence[MovedDeadline], deadline: _Deadline) -> None:
        for each in machines:
            machine = self._machine(each.machine_id)
            admin = self.world.connector.connect(machine.require_address().as_admin)
            at = agent_client.clock_at(admin, self.world.clock, deadline(each))
            self.touched.add(each.machine_id)
            agent_client.extend(admin, machine, at)

    def _record(self, deadline: _Deadline, run: RunDeadline | None) -> None:
        """Write deadlines into the ledger, which must never expect less than the machines can cost."""
        ledger = self.world.ledger
        record = ledger.run(self.action.run_id)
        if run is not None and record is not None and record.stage is RunStage.LIVE:
            job = msgspec.structs.replace(record.spec.job, time_limit=run.time_limit)
            spec = replace(record.spec, until=run.until, job=job)
            if spec != record.spec:
                ledger.open_run(spec, self.world.clock.now())
        for each in self.action.machines:
            machine = self._machine(each.machine_id)
            if machine.deadline_at != deadline(each):
                ledger.put_machine(replace(machine, deadline_at=deadline(each)))

    def _machine(self, machine_id: str) -> Machine:
        machines = self.world.ledger.machines(self.action.run_id, live_only=True)
        machine = next((each for each in machines if each.id == machine_id), None)
        if machine is None:
            raise KedgeError(f"machine {machine_id} is not in the ledger")
        return machine

    def _close(self, intent: int, state: IntentState, detail: str = "") -> None:
        self.world.ledger.close_intent(intent, state, self.world.clock.now(), detail)


def _after(machine: MovedDeadline) -> datetime:
    return machine.after


def _before(machine: MovedDeadline) -> datetime:
    return machine.before


def _latest(run: MovedRun | None) -> RunDeadline | None:
    return max(run.before, run.after, key=lambda each: each.until) if run is not None else None


def _find_over_budget(world: World, action: ExtendDeadline) -> OverBudgetError | None:
    """Return why a move isn't finished: the run's budget was lowered meanwhile."""
    record = world.ledger.run(action.run_id)
    budget = record.spec.job.budget_usd if record is not None else None
    if budget is None or cents(action.worst_usd) <= cents(budget):
        return None
    return OverBudgetError(
        f"the worst case would cost {format_usd(action.worst_usd)}", why=f"the budget is {format_usd(budget)}"
    )


def _unsettled(action: ExtendDeadline, cause: KedgeError, failures: Sequence[KedgeError]) -> KedgeError:
    then = "; ".join(f"{err.what} {err.why}".strip() for err in failures)
    return KedgeError(
        f"the deadline of run {action.run_id} is neither moved nor moved back",
        why=f"{cause.what} {cause.why}".strip() + f"; then: {then}",
        fix=f"`kedge status {action.run_id}` tries again; until then the ledger expects the later deadline, and the "
        "machines end at the old one or at the new one",
    )
