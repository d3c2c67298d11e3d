"""A deadline is moved everywhere or nowhere: whatever fails, wherever the command is killed, the next settles it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from orchestrator.adapters.host.clock import SystemClock
from orchestrator.adapters.ledger.sqlite import SqliteLedger
from orchestrator.core.actions import ExtendDeadline
from orchestrator.core.errors import KedgeError
from orchestrator.core.ledger import IntentState, Ledger
from orchestrator.core.machine import SshAddress
from orchestrator.core.plan import Plan
from orchestrator.core.values.deadlines import MovedDeadline, MovedRun, RunDeadline
from orchestrator.engine.apply import apply
from orchestrator.engine.extending import extend_deadline
from orchestrator.engine.observing.reconcile import reconcile
from tests.engine.deadline_keepers import HOUR, NAMES, NEW, OLD, SPEC, Place, Timer, near
from tests.support.fake_cloud.process import KilledError, Process, killed_at
from tests.support.fakes import MACHINE, RUN, FakeProvider


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """Two machines of a recovered run, with one deadline."""
    ledger = SqliteLedger(tmp_path, SystemClock())
    ledger.open_run(SPEC, datetime.now(UTC))
    machines = tuple(
        replace(
            MACHINE,
            id=name,
            deadline_at=OLD,
            address=SshAddress(
                host=name, port=22, user="job", admin="kedge", host_key="ssh-ed25519 AAAA", key_file="/nowhere"
            ),
        )
        for name in NAMES
    )
    for machine in machines:
        ledger.put_machine(machine)
    yield Place(ledger, FakeProvider(there=machines), {name: Timer(name) for name in NAMES})
    ledger.close()


def action(**changes: Any) -> ExtendDeadline:
    """Move both machines and the run."""
    moved = tuple(MovedDeadline(machine_id=each, before=OLD, after=NEW, usd_per_hour=Decimal(1)) for each in NAMES)
    run = MovedRun(before=RunDeadline(until=OLD, time_limit=HOUR), after=RunDeadline(until=NEW, time_limit=3 * HOUR))
    return replace(ExtendDeadline(run_id=RUN, machines=moved, run=run, by=2 * HOUR, worst_usd=Decimal(5)), **changes)


def extend(place: Place, process: Process | None = None, **changes: Any) -> None:
    extend_deadline(place.world(process), action(**changes), lambda _event: None)


def settle(place: Place) -> tuple[str, ...]:
    """Do what the next command does first."""
    return reconcile(place.world(), RUN)


def test_all_deadlines_are_moved(place: Place) -> None:
    """Timers, guards, ledger and run; each machine as root, by its own clock; the intent is closed."""
    extend(place)
    assert place.everywhere(NEW)
    assert all(each.at <= NEW for each in place.timers.values())
    assert place.timers[NAMES[0]].users == ["kedge", "kedge sudo -n"]
    (intent,) = place.ledger.intents(RUN)
    assert (intent.kind, intent.subject, intent.state) == ("ExtendDeadline", RUN, IntentState.DONE)
    record = place.ledger.run(RUN)
    assert record is not None
    assert record.spec.job.time_limit == 3 * HOUR
    assert settle(place) == ()


def test_the_ledger_expects_the_later_deadline_before_anything_is_moved(place: Place) -> None:
    """Whoever reads it meanwhile counts with what the machines may cost."""
    seen = []

    def look(machine_id: str, deadline_at: datetime) -> Sequence[str]:
        seen.append([each.deadline_at for each in place.ledger.machines(RUN)])
        return FakeProvider.move_deadline(place.provider, machine_id, deadline_at)

    place.provider.move_deadline = look  # type: ignore[method-assign]
    extend(place)
    assert seen == [[NEW, NEW]] * 2


def kill_points(place: Place) -> int:
    """Count the points at which the command can be killed."""
    process = Process()
    extend(place, process)
    return process.points


POINTS = 18
"""How many there are; the first test below counts."""


def test_every_change_is_a_point(place: Place) -> None:
    """It fails if a move makes another change, which the points would miss."""
    assert kill_points(place) == POINTS


@pytest.mark.parametrize("then", ["finished", "undone"])
def test_a_move_that_was_killed_anywhere_is_finished_or_undone(place: Place, then: str) -> None:
    """Meanwhile no machine has another deadline than these two, and none a later one than the ledger expects.

    It is undone if a machine whose timer hasn't been moved doesn't answer any more. If one was moved, and is silent,
    the intent stays open until it answers.
    """
    for point in range(POINTS):
        with pytest.raises(KilledError):
            extend(place, killed_at(point))
        found = place.deadlines()
        assert all(held <= {OLD, NEW} for held in found.values()), (point, found)
        assert max(found["timers"]) <= max(found["ledger"]), (point, found)
        assert max(found["provider"]) <= max(found["ledger"]), (point, found)
        place.timers[NAMES[1]].answers = then == "finished"
        settle(place)
        open_intents = place.ledger.open_intents(RUN)
        silent = place.timers[NAMES[1]]
        if then == "undone" and open_intents:
            assert min(place.deadlines()["ledger"]) == NEW, "a machine may still live to the new one"
        if then == "undone" and not open_intents:
            assert place.everywhere(OLD) or place.everywhere(NEW), (point, place.deadlines())
        silent.answers = True
        settle(place)
        assert place.ledger.open_intents(RUN) == (), point
        assert place.everywhere(OLD) or place.everywhere(NEW), (point, place.deadlines())
        if place.everywhere(NEW):
            back = tuple(replace(each, before=NEW, after=OLD) for each in action().machines)
            run = cast("MovedRun", action().run)
            extend(place, machines=back, run=MovedRun(before=run.after, after=run.before))
        assert place.everywhere(OLD)


def fail_outside(place: Place) -> None:
    place.provider.unmovable = KedgeError("the tags can't be written", why="AccessDenied")


def fail_second_machine(place: Place) -> None:
    place.timers[NAMES[1]].answers = False


def refuse_on_second_machine(place: Place) -> None:
    place.timers[NAMES[1]].refuses = True


def test_a_machine_that_is_silent_leaves_all_as_it_was(place: Place) -> None:
    """The first machine is moved back, too; nothing has to be done about it."""
    fail_second_machine(place)
    with pytest.raises(KedgeError, match="was not moved: digits-1-m2 doesn't answer"):
        extend(place)
    assert place.everywhere(OLD)
    assert place.ledger.open_intents(RUN) == ()
    record = place.ledger.run(RUN)
    assert record is not None
    assert record.spec == SPEC


@pytest.mark.parametrize("fail", [fail_outside, refuse_on_second_machine])
def test_what_can_not_be_moved_back_stays_open_and_is_settled_later(
    place: Place, fail: Callable[[Place], None]
) -> None:
    """The error says so. Whatever fails in both directions, the ledger expects the later deadline."""
    fail(place)
    with pytest.raises(KedgeError, match="is neither moved nor moved back") as caught:
        extend(place)
    assert f"kedge status {RUN}" in caught.value.fix
    assert place.deadlines()["ledger"] == {NEW}
    assert len(place.ledger.open_intents(RUN)) == 1
    assert "is neither moved nor moved back" in settle(place)[0]
    place.provider.unmovable, place.timers[NAMES[1]].refuses = None, False
    assert settle(place) == ("an interrupted move of the deadline is complete",)
    assert place.everywhere(NEW)


@pytest.mark.parametrize("time", [b"", b"soon", b"-5", b"9" * 12])
def test_a_machine_whose_time_is_nonsense_leaves_all_as_it_was(place: Place, time: bytes) -> None:
    """It is asked as the administrator; what it answers becomes its deadline."""
    place.timers[NAMES[1]].tells = time
    with pytest.raises(KedgeError, match="was not moved"):
        extend(place)
    assert place.everywhere(OLD)
    assert place.ledger.open_intents(RUN) == ()


def test_an_answer_that_is_lost_may_mean_that_the_timer_was_moved(place: Place) -> None:
    """The machine is asked to move back; while it is silent, the ledger expects that it lives on."""
    place.timers[NAMES[1]].loses_answers = True
    with pytest.raises(KedgeError, match="is neither moved nor moved back"):
        extend(place)
    assert place.deadlines() == {"timers": {OLD, NEW}, "provider": {OLD}, "ledger": {NEW}, "run": {NEW}}
    place.timers[NAMES[1]].answers = True
    settle(place)
    assert place.everywhere(NEW)


def test_a_move_that_the_budget_does_not_allow_any_more_is_undone(place: Place) -> None:
    """It was lowered while the move was interrupted."""
    with pytest.raises(KilledError):
        extend(place, killed_at(POINTS - 4))
    record = cast("Ledger", place.ledger).run(RUN)
    assert record is not None
    job = msgspec.structs.replace(record.spec.job, budget_usd=Decimal(4))
    place.ledger.open_run(replace(record.spec, job=job), datetime.now(UTC))
    (found,) = settle(place)
    assert "the worst case would cost $5.00 (the budget is $4.00)" in found
    assert place.everywhere(OLD)


def test_machines_that_are_gone_meanwhile_do_not_hold_up_the_others(place: Place) -> None:
    """The killed command had them in its list."""
    with pytest.raises(KilledError):
        extend(place, killed_at(POINTS // 2))
    place.provider.destroy(NAMES[1])
    found = settle(place)
    assert "an interrupted move of the deadline is complete" in found
    assert near(place.timers[NAMES[0]].at) == NEW
    assert place.ledger.open_intents(RUN) == ()


def test_a_plan_with_a_move_is_applied_like_any_other(place: Place) -> None:
    """Under the run's lock, with its changed budget."""
    job = msgspec.structs.replace(SPEC.job, budget_usd=Decimal(9))
    spec = replace(SPEC, job=job)
    progress = apply(Plan(run_id=RUN, actions=(action(),)), spec, place.world(), lambda _event: None)
    assert progress.finished
    assert place.everywhere(NEW)
    record = place.ledger.run(RUN)
    assert record is not None
    assert record.spec.job.budget_usd == Decimal(9)
