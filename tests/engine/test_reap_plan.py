"""What is to be reaped of a run, by what its provider has and by what the ledger knows."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from orchestrator.core.job import Job, LaunchSpec
from orchestrator.core.ledger import RunRecord, RunStage
from orchestrator.core.machine import Machine, MachineState
from orchestrator.core.reaping import History, Reaping, RunSeen, Step, plan_reaping
from orchestrator.core.sweep import Leftover

NOW = datetime(2026, 11, 21, 18, tzinfo=UTC)
RUN = "digits-1121-ab2c"
M1, M2 = f"{RUN}-m1", f"{RUN}-m2"
USED = History(created=frozenset({M1}), used=frozenset({M1}))
GIVEN_UP = History(created=frozenset({M1}))
SCANS = Leftover(kind="data volume", name="scans (vol-1)", run_id=RUN, usd_per_hour=Decimal("0.01"))
ROLE = Leftover(kind="role", name=f"kedge-run-{RUN}", run_id=RUN)


def machine(name: str = M1, *, left: timedelta = timedelta(hours=1)) -> Machine:
    return Machine(
        id=name,
        run_id=RUN,
        provider="do",
        provider_id="x",
        state=MachineState.READY,
        root="/nowhere",
        created_at=NOW - timedelta(hours=1),
        deadline_at=NOW + left,
        usd_per_hour=Decimal("1.99"),
        region="nyc2",
    )


def record(stage: RunStage = RunStage.LIVE, *, outcome: str = "", **spec: Any) -> RunRecord:
    launched = LaunchSpec(run_id=RUN, provider="do", job=Job(name="digits", run="python train.py"), **spec)
    return RunRecord(spec=launched, stage=stage, outcome=outcome, created_at=NOW, ended_at=None)


def seen(**fields: Any) -> RunSeen:
    """See a run that trains: one machine, which the ledger knows."""
    there = fields.pop("machines", (machine(),))
    made = RunSeen(
        run_id=RUN,
        provider="do",
        record=record(),
        machines=there,
        recorded=there,
        history=USED,
        deadlines=tuple(each.deadline_at for each in there),
    )
    return replace(made, **fields)


def plan(run: RunSeen, *, everyone: bool = False) -> Reaping:
    return plan_reaping(run, NOW, everyone=everyone)


def steps(reaping: Reaping) -> list[tuple[str, Step]]:
    return [(finding.what, finding.step) for finding in reaping.findings]


def test_a_run_at_work_is_left_alone() -> None:
    """Its command was started, and its deadline is ahead: there is nothing to say of it, nor of what it has."""
    assert steps(plan(seen(leftovers=(SCANS, ROLE)))) == []


def test_a_machine_past_its_deadline_is_ended_with_all_that_its_run_has() -> None:
    """The run's time is over: what isn't kept goes too, and the ledger's entry is closed."""
    late = machine(left=-timedelta(minutes=6))
    kept = replace(SCANS, name="kept", kept=True)
    reaping = plan(seen(machines=(late,), leftovers=(SCANS, ROLE, kept)))
    assert steps(reaping) == [
        (f"machine {M1}", Step.END),
        ("data volume scans (vol-1)", Step.RELEASE),
        (f"role kedge-run-{RUN}", Step.RELEASE),
        (f"entry of run {RUN}", Step.SETTLE),
    ]
    assert reaping.closes
    (ended, volume, *_) = reaping.findings
    assert (ended.why, ended.region, ended.age) == ("past its deadline by 6m", "nyc2", timedelta(hours=1))
    assert [finding.bills for finding in reaping.findings] == [True, True, False, False]
    assert volume.why == "the time of its run is over"


def test_a_machine_has_some_minutes_to_end_itself() -> None:
    """At its deadline it checkpoints and ships first; meanwhile it may bill, and that is said."""
    reaping = plan(seen(machines=(machine(left=-timedelta(minutes=4)),)))
    (finding,) = reaping.findings
    assert (finding.step, finding.bills, reaping.acts) == (Step.LEAVE, True, False)


def test_one_machine_past_its_deadline_ends_neither_the_other_nor_the_run() -> None:
    """A run that was recovered goes on; what it has stays."""
    run = seen(machines=(machine(left=-timedelta(hours=1)), machine(M2)), leftovers=(SCANS,))
    run = replace(run, history=History(created=frozenset({M1, M2}), used=frozenset({M1, M2})))
    reaping = plan(run)
    assert steps(reaping) == [(f"machine {M1}", Step.END)]
    assert not reaping.closes


def test_a_machine_of_a_closed_run_is_ended() -> None:
    """Nobody will look for it again."""
    reaping = plan(seen(record=record(RunStage.ENDED), recorded=()))
    assert [each.id for each in reaping.ends] == [M1]
    assert reaping.closes
    assert reaping.findings[0].why == "its run is closed"


def test_what_a_closed_run_still_has_is_released() -> None:
    """A teardown that died, or a provider that was slow, left it."""
    reaping = plan(seen(record=record(RunStage.ENDED), machines=(), leftovers=(SCANS,)))
    assert steps(reaping) == [("data volume scans (vol-1)", Step.RELEASE)]


def test_a_machine_whose_launch_died_before_the_command_started_is_ended() -> None:
    """It computes nothing, and nobody is at work on it."""
    reaping = plan(seen(history=GIVEN_UP, recorded=(), interrupted=("CreateMachine",)))
    assert [each.id for each in reaping.ends] == [M1]
    assert reaping.closes


def test_a_machine_that_is_being_launched_is_left_alone() -> None:
    """The launch holds the run's lock."""
    assert steps(plan(seen(history=GIVEN_UP, recorded=(), busy=True))) == []


def test_a_machine_that_this_computer_did_not_ask_for_is_of_use_to_somebody() -> None:
    """The ledger has the run since a teardown was begun and refused: what its machine does isn't known."""
    assert plan(seen(history=History())).ends == ()


def test_a_machine_whose_end_was_begun_is_ended() -> None:
    """A teardown died between its intent and the provider's word."""
    reaping = plan(seen(history=replace(USED, ending=frozenset({M1}), last_was_end=True)))
    assert [each.id for each in reaping.ends] == [M1]
    assert reaping.closes


def test_a_machine_that_is_off_and_bills_is_ended() -> None:
    """Nobody came to a machine that waited to be brought its agent: without a token all it can do is power off."""
    off = replace(machine(), state=MachineState.ENDING)
    (ended,) = plan(seen(machines=(off,), bills_when_off=True)).findings
    assert (ended.step, ended.why) == (Step.END, "it is powered off, and bills all the same")


def test_a_machine_whose_power_off_is_its_end_is_left_to_it() -> None:
    """It will be gone in a moment, and how it ended is for whoever recovers its run to know."""
    assert steps(plan(seen(machines=(replace(machine(), state=MachineState.ENDING),)))) == []


def test_a_busy_run_past_its_deadline_is_named_and_left() -> None:
    """Two commands must not act on one run; it may bill, and that is said."""
    (finding,) = plan(seen(machines=(machine(left=-timedelta(minutes=59)),), busy=True)).findings
    assert (finding.step, finding.bills) == (Step.LEAVE, True)
    assert "another command is at work" in finding.why


def test_a_machine_that_keeps_a_command_waiting_is_ended_an_hour_past_its_deadline() -> None:
    """It could keep that command, and the run's lock, for ever."""
    reaping = plan(seen(machines=(machine(left=-timedelta(hours=1)),), busy=True))
    assert ([each.id for each in reaping.ends], reaping.closes) == ([M1], False)


def test_a_run_without_a_machine_keeps_what_it_has_until_its_time_is_over() -> None:
    """`resume` may go on with it, and needs its data; its entry of a machine that is gone is settled."""
    run = seen(machines=(), recorded=(machine(),), deadlines=(NOW + timedelta(hours=1),), leftovers=(SCANS,))
    assert steps(plan(run)) == [(f"entry of machine {M1}", Step.SETTLE)]
    later = replace(run, deadlines=(NOW - timedelta(hours=1),))
    assert ("data volume scans (vol-1)", Step.RELEASE) in steps(plan(later))


def test_a_run_that_waits_to_be_recovered_keeps_what_it_has() -> None:
    """Its machine was taken away, and its replacement isn't to be had: only its time ends it."""
    ended = replace(USED, ending=frozenset({M1}), last_was_end=True)
    run = seen(record=record(recover=True, until=NOW + timedelta(hours=1)), machines=(), history=ended)
    assert not plan(replace(run, leftovers=(SCANS,))).closes
    late = replace(run, record=record(recover=True, until=NOW - timedelta(hours=1)))
    assert plan(late).closes


def test_a_run_that_has_succeeded_keeps_nothing() -> None:
    """Its machine ended itself; its volume was for this run alone."""
    run = seen(record=record(outcome="succeeded"), machines=(), leftovers=(SCANS,))
    assert ("data volume scans (vol-1)", Step.RELEASE) in steps(plan(run))


def test_a_run_that_never_had_a_machine_is_closed() -> None:
    """Its launch died before the provider was asked, or right after it had made a volume."""
    run = seen(machines=(), history=GIVEN_UP, leftovers=(SCANS,), interrupted=("CreateMachine",))
    assert steps(plan(run)) == [
        ("data volume scans (vol-1)", Step.RELEASE),
        (f"entry of run {RUN}", Step.SETTLE),
    ]


def test_a_machine_that_starts_by_itself_goes_on_without_its_launch() -> None:
    """The ledger takes it in; the machine trains, ships and ends itself."""
    run = seen(recorded=(), interrupted=("CreateMachine",))
    assert steps(plan(run)) == [
        (f"entry of machine {M1}", Step.SETTLE),
        (f"entry of run {RUN}", Step.SETTLE),
    ]
    assert plan(run).ends == ()


@pytest.mark.parametrize("everyone", [False, True])
def test_a_living_run_of_another_computer_is_never_touched(everyone: bool) -> None:
    """Not even with --all; without it the machine is named, since nothing here accounts for it."""
    reaping = plan(seen(record=None, recorded=(), history=History(), leftovers=(SCANS,)), everyone=everyone)
    assert not reaping.acts
    assert [finding.bills for finding in reaping.findings] == ([] if everyone else [True])


def test_another_computer_s_machine_past_its_deadline_is_ended_when_asked_for() -> None:
    """With --all it goes, with all that its run has; without, it is named and may bill."""
    late = seen(record=None, recorded=(), machines=(machine(left=-timedelta(hours=1)),), leftovers=(SCANS,))
    reaping = plan(late, everyone=True)
    assert steps(reaping) == [(f"machine {M1}", Step.END), ("data volume scans (vol-1)", Step.RELEASE)]
    (finding,) = plan(late).findings
    assert (finding.step, finding.bills) == (Step.LEAVE, True)
    assert "--all" in finding.why


def test_another_computer_s_volume_without_a_machine_is_named_and_left() -> None:
    """Its run may go on from it elsewhere; what bills nothing isn't worth a word."""
    reaping = plan(seen(record=None, recorded=(), machines=(), leftovers=(SCANS, ROLE)), everyone=True)
    assert steps(reaping) == [("data volume scans (vol-1)", Step.LEAVE)]
