"""Plans of `kedge extend`: what is moved, what that can cost, and what is refused before anything is touched."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import msgspec
import pytest

from orchestrator.app.extending import read_move
from orchestrator.core.action_words import describe
from orchestrator.core.actions import ExtendDeadline
from orchestrator.core.errors import BadRequestError, KedgeError, OverBudgetError, UnreachableError
from orchestrator.core.job import Job, LaunchSpec
from orchestrator.core.machine import Machine, MachineState, SshAddress
from orchestrator.core.plan import AfterStart, Observed, Plan
from orchestrator.core.planning.extend import DeadlinesSeen, MachineSeen, Move, plan_extension
from orchestrator.core.planning.launch import plan_launch
from orchestrator.core.planning.price import extend_fix
from orchestrator.core.planning.restart import plan_restart
from orchestrator.core.protocol.report import DEADLINE, Command, MachineReport, RunState
from orchestrator.core.task import Expect, Task
from orchestrator.core.values.deadlines import MovedDeadline, MovedRun, RunDeadline
from tests.support.fakes import MACHINE, RUN

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
SPEC = LaunchSpec(run_id=RUN, provider="fake", job=Job(name="digits", tasks=(Task(run="train"),)))
READY = replace(
    MACHINE,
    created_at=NOW - HOUR,
    deadline_at=NOW + HOUR,
    usd_per_hour=Decimal(2),
    address=SshAddress(host="h", port=22, user="job", admin="kedge", host_key="ssh-ed25519 A", key_file="/k"),
)
TWO_HOURS = Move(by=2 * HOUR)
COMMAND_NOTE = "the command reads the new deadline in $KEDGE_DEADLINE_FILE; $KEDGE_DEADLINE is that of its start"


def seen(number: int = 1, *, command: Command | None = None, extends: bool = True, **changes: object) -> MachineSeen:
    machine: Machine = replace(READY, id=f"{RUN}-m{number}", **changes)  # type: ignore[arg-type]
    report = MachineReport(
        machine=machine.id,
        run=RUN,
        now=0,
        created=0,
        deadline_at=0,
        usd_per_hour="2",
        command=command or Command(state=RunState.RUNNING),
        extends=extends,
    )
    return MachineSeen(machine=machine, report=report)


def plan(*machines: MachineSeen, move: Move = TWO_HOURS, spec: LaunchSpec = SPEC, budget: str = "") -> Plan:
    if budget:
        spec = replace(spec, job=msgspec.structs.replace(spec.job, budget_usd=Decimal(budget)))
    there = DeadlinesSeen(now=NOW, machines=machines, spent_usd=Decimal(2), caveats=("it bills on",), revision=7)
    return plan_extension(spec, there, move)


def test_a_plan_shows_each_machine_and_the_new_worst_case() -> None:
    """Spent so far, and each machine's price until the new deadline."""
    made = plan(seen(1), seen(2, usd_per_hour=Decimal(1)), budget="11")
    (action,) = made.actions
    assert describe(action) == (
        "move the deadline: digits-1-m1 from 2026-11-23 13:00 UTC to 2026-11-23 15:00 UTC at $2.00/h, "
        "digits-1-m2 from 2026-11-23 13:00 UTC to 2026-11-23 15:00 UTC at $1.00/h"
    )
    assert (made.usd_per_hour, made.worst_usd, made.budget_usd) == (Decimal(3), Decimal(11), Decimal(11))
    assert (made.run_id, made.most_usd_per_hour, made.basis) == (RUN, Decimal(3), "prices: those of the run's machines")
    assert (made.deadline_at, made.revision) == (NOW + 3 * HOUR, 7)
    moved = tuple(
        MovedDeadline(
            machine_id=f"{RUN}-m{number}", before=NOW + HOUR, after=NOW + 3 * HOUR, usd_per_hour=Decimal(price)
        )
        for number, price in ((1, 2), (2, 1))
    )
    assert action == ExtendDeadline(run_id=RUN, machines=moved, by=2 * HOUR, worst_usd=Decimal(11))
    assert made.notes == (COMMAND_NOTE, "it bills on")


def test_more_than_the_budget_is_refused() -> None:
    """With the exit code of a launch over its budget; a cent decides."""
    with pytest.raises(OverBudgetError) as caught:
        plan(seen(), budget="7.99")
    assert caught.value.exit_code == 4
    assert caught.value.fix == "move it by less, or raise the limit, as in `kedge extend digits-1 ... --budget USD`"
    assert plan(seen(), budget="8").worst_usd == Decimal(8)


def test_the_billed_minimum_counts() -> None:
    """A machine that is billed for five hours at least isn't cheaper with an earlier deadline."""
    made = plan(seen(billed_for_at_least=5 * HOUR), seen(2), move=Move(until=NOW + HOUR / 2))
    assert made.worst_usd == Decimal(2) + 4 * Decimal(2) + Decimal(1)


def test_a_deadline_may_be_moved_to_an_instant_and_to_an_earlier_one() -> None:
    """The plan says that the command loses time."""
    made = plan(seen(), move=Move(until=NOW + HOUR / 2))
    assert made.deadline_at == NOW + HOUR / 2
    assert (
        made.notes[0] == "this shortens the run's time: its command is stopped before the new deadline, and checkpoints"
    )
    with pytest.raises(BadRequestError) as caught:
        plan(seen(), move=Move(until=NOW + timedelta(seconds=119)))
    assert str(caught.value) == (
        "the new deadline, 2026-11-23 12:01 UTC, is too early\n"
        "  why: a machine needs 2m to save its work and end itself\n"
        "  fix: choose a later one, or end the run with `kedge teardown`"
    )
    assert plan(seen(), move=Move(until=NOW + timedelta(seconds=120))).actions


def test_a_deadline_that_is_there_already_is_not_moved() -> None:
    """A machine counts whole seconds."""
    made = plan(seen(), move=Move(until=READY.deadline_at + timedelta(milliseconds=999)))
    assert (made.actions, made.notes) == ((), ("its deadline is there already",))
    assert plan(seen(), move=Move(until=READY.deadline_at + timedelta(seconds=1))).actions


def test_a_recovered_run_gets_its_own_deadline_moved() -> None:
    """Else a machine that replaces a lost one would end at the old one; without a machine, only the run's is moved."""
    spec = replace(SPEC, recover=True, until=NOW + HOUR)
    for machines in ((seen(),), ()):
        made = plan(*machines, spec=spec)
        (action,) = made.actions
        assert isinstance(action, ExtendDeadline)
        assert action.run == MovedRun(
            before=RunDeadline(until=NOW + HOUR, time_limit=spec.job.time_limit),
            after=RunDeadline(until=NOW + 3 * HOUR, time_limit=3 * HOUR),
        )
        assert made.deadline_at == NOW + 3 * HOUR
        assert made.notes == (
            "a machine that replaces a lost one ends at the new deadline, too",
            "no budget is set (--budget refuses what may cost more)",
            *((COMMAND_NOTE, "it bills on") if machines else ()),
        )
    assert describe(action) == ("move the deadline: the run's from 2026-11-23 13:00 UTC to 2026-11-23 15:00 UTC")
    assert made.worst_usd == Decimal(2)


STOPPING = Command(state=RunState.STOPPING, reason=DEADLINE)
STOPPED = Command(state=RunState.STOPPED, reason=DEADLINE)


RESUME = "kedge resume digits-1 --ttl 2h"
SILENT = replace(seen(2), report=None, problem="machine digits-1-m2 doesn't answer")
BOOTING = """\
machine digits-1-m1 is still booting: its deadline can't be moved yet
  fix: try again once `kedge status digits-1` shows its command"""
ENDING = f"""\
machine digits-1-m1 is ending at its deadline already: its command was asked to checkpoint and exit
  fix: go on with another machine once it is gone: `{RESUME}`"""


@pytest.mark.parametrize(
    ("machines", "kind", "says"),
    [
        (
            (),
            BadRequestError,
            f"run digits-1 has no machine whose deadline could be moved\n  fix: give it one with `{RESUME}`",
        ),
        (
            (seen(state=MachineState.ENDING), seen(2, state=MachineState.ENDING)),
            BadRequestError,
            "run digits-1 has no machine whose deadline could be moved\n"
            f"  why: digits-1-m1, digits-1-m2 is ending\n  fix: give it one with `{RESUME}`",
        ),
        ((seen(state=MachineState.BOOTING),), BadRequestError, BOOTING),
        ((replace(seen(address=None), report=None),), BadRequestError, BOOTING),
        (
            (seen(state=MachineState.UNKNOWN),),
            UnreachableError,
            "the deadline of machine digits-1-m1 can't be moved; nothing was changed\n"
            "  why: its provider says that it is unknown\n  fix: look at it with `kedge status digits-1`",
        ),
        (
            (seen(), SILENT),
            UnreachableError,
            "the deadline of machine digits-1-m2 can't be moved; nothing was changed\n"
            "  why: machine digits-1-m2 doesn't answer\n  fix: look at it with `kedge status digits-1`",
        ),
        (
            (seen(), seen(2, extends=False)),
            BadRequestError,
            "machine digits-1-m2 can't move its deadline; nothing was changed\n"
            "  why: its agent is of an earlier version of kedge\n"
            f"  fix: after its deadline, go on with another machine: `{RESUME}`",
        ),
        ((seen(command=STOPPING),), BadRequestError, ENDING),
        ((seen(command=STOPPED),), BadRequestError, ENDING),
    ],
)
def test_what_can_not_be_moved_is_refused(machines: tuple[MachineSeen, ...], kind: type[KedgeError], says: str) -> None:
    """One machine that can't is enough, and every refusal says what to do."""
    with pytest.raises(kind) as caught:
        plan(*machines)
    assert str(caught.value) == says


def test_a_command_that_an_operator_has_stopped_does_not_hold_up_its_machine() -> None:
    """Nor one that failed: somebody may start it again."""
    for command in (
        Command(state=RunState.STOPPED, reason="an operator's stop"),
        Command(state=RunState.FAILED, reason=DEADLINE),
    ):
        assert plan(seen(command=command)).actions


def test_a_machine_that_is_being_reclaimed_is_left_out() -> None:
    """It is gone in two minutes; the others are moved."""
    leaving = seen(2)
    assert leaving.report is not None
    leaving = replace(leaving, report=msgspec.structs.replace(leaving.report, notice=1.0))
    (action,) = plan(seen(), leaving).actions
    assert isinstance(action, ExtendDeadline)
    assert [each.machine_id for each in action.machines] == [f"{RUN}-m1"]


def test_errors_about_a_deadline_that_is_too_short_name_the_command() -> None:
    """With some more time than is missing, as it is typed."""
    assert (
        extend_fix(RUN, timedelta(minutes=47)) == "give its machine more time, for example `kedge extend digits-1 59m`"
    )
    assert extend_fix(RUN, 2 * HOUR).endswith("`kedge extend digits-1 2h30m`")


@pytest.mark.parametrize(
    ("expected", "usual", "has_results", "noted"),
    [
        (3 * HOUR, None, False, True),
        (HOUR, None, False, False),
        (3 * HOUR, None, True, False),
        (None, 2 * HOUR, False, True),
    ],
)
def test_a_start_on_a_machine_that_ends_too_early_names_the_command(
    expected: timedelta | None, usual: timedelta | None, has_results: bool, noted: bool
) -> None:
    """For a resume and a restart; a run with results has less to do than a whole one."""
    spec = replace(SPEC, job=msgspec.structs.replace(SPEC.job, expect=Expect(duration=expected)))
    report = seen().report
    assert report is not None
    there = Observed(
        now=NOW,
        machines=(READY,),
        report=msgspec.structs.replace(report, machine=READY.id, command=Command()),
        machine_type="g5.xlarge",
        usual_durations={} if usual is None else {"g5.xlarge": usual},
        has_results=has_results,
    )
    resumed = plan_launch(spec, there, AfterStart(follow=False, destination=None))
    for made in (resumed, plan_restart(spec, there)):
        notes = [note for note in made.notes if "kedge extend" in note]
        assert bool(notes) is noted, made.notes
        takes, by = ("3h", "2h30m") if usual is None else ("2h", "1h15m")
        said = f"it is expected to take {takes}, but its machine is gone in 1h: give its machine more time, for example"
        assert notes in ([], [f"{said} `kedge extend {RUN} {by}`"])


def local(text: str) -> datetime:
    """Read a time of this computer's clock."""
    return datetime.fromisoformat(text).astimezone(UTC)


@pytest.mark.parametrize(
    ("until", "at"),
    [
        ("18:00", "2026-11-23 18:00"),
        (" 18:00 ", "2026-11-23 18:00"),
        ("08:30", "2026-11-24 08:30"),
        ("12:00", "2026-11-24 12:00"),
        ("2026-12-01T07:15", "2026-12-01 07:15"),
        ("2026-12-01 07:15", "2026-12-01 07:15"),
    ],
)
def test_hours_are_those_of_this_computer_s_clock(until: str, at: str) -> None:
    """An hour that is over today is tomorrow's."""
    assert read_move(None, until, local("2026-11-23 12:00")) == Move(until=local(at))


def test_a_time_may_have_an_offset() -> None:
    """As scripts write it."""
    assert read_move(None, "2026-12-01T07:15:00+05:45", NOW).until == datetime(2026, 12, 1, 1, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("by", "until"),
    [(None, None), ("2h", "18:00"), ("two", None), (None, "25:00"), (None, "soon"), (None, "18"), ("99999999d", None)],
)
def test_nonsense_is_refused_before_anything_is_asked(by: str | None, until: str | None) -> None:
    """With a fix that shows how it is written."""
    with pytest.raises(BadRequestError) as caught:
        read_move(by, until, NOW)
    assert caught.value.fix.startswith("write ")
