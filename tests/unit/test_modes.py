"""A run's modes: which is the present one, what those before have cost, and where the results of each are."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from orchestrator.core.errors import BadRequestError
from orchestrator.core.job import EarlierMode, Job, LaunchSpec
from orchestrator.core.modes import (
    enter_mode,
    enter_next_mode,
    find_mode,
    is_same_mode,
    leave_mode,
    list_modes,
    logs_of,
    result_folders,
    with_recorded_modes,
)
from orchestrator.core.task import Task
from orchestrator.core.values.cost import Rental, clip

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
TASKS = (Task(name="a", run="x"), Task(name="b", run="x"))


def job(mode: str, *, tasks: tuple[Task, ...] = (Task(run="x"),), **values: object) -> Job:
    return Job(name="fresnel", mode=mode, tasks=tasks, **values)  # type: ignore[arg-type]


def rental(begin: int, end: int | None, *, usd: int = 2, once: int = 0) -> Rental:
    """Hours after NOW."""
    until = NOW + end * HOUR if end is not None else None
    return Rental(
        machine_id="m", usd_per_hour=Decimal(usd), since=NOW + begin * HOUR, until=until, once_usd=Decimal(once)
    )


SPEC = LaunchSpec(
    run_id="fresnel-1", provider="local", job=job("validate"), later=(job("fast", tasks=TASKS), job("full"))
)


def test_a_rental_is_divided_between_the_modes_of_its_time() -> None:
    """What was paid once belongs to the mode in which the machine began."""
    parts = clip([rental(0, 2, once=1), rental(3, None)], NOW + HOUR, NOW + 4 * HOUR)
    assert [(part.since, part.until) for part in parts] == [
        (NOW + HOUR, NOW + 2 * HOUR),
        (NOW + 3 * HOUR, NOW + 4 * HOUR),
    ]
    assert [str(part.once_usd) for part in parts] == ["0", "0"]
    (first,) = clip([rental(0, 2, once=1)], None, NOW + HOUR)
    assert (first.until, str(first.once_usd)) == (NOW + HOUR, "1")
    assert clip([rental(0, 1)], NOW + HOUR, NOW + 2 * HOUR) == ()


def test_a_mode_took_as_long_as_its_command_however_many_machines_it_had() -> None:
    """What is billed is all machines' time, and the time in which they waited for another mode."""
    machines = [rental(0, None), rental(0, None), rental(0, 1), rental(2, None)]
    left = leave_mode(SPEC, "succeeded", machines, NOW + 10 * HOUR, NOW + 3 * HOUR)
    assert (left.seconds / 3600, left.took_seconds) == (29.0, 3 * 3600.0)
    assert leave_mode(SPEC, "succeeded", [rental(0, 1), rental(2, 3)], NOW + 10 * HOUR).took_seconds == 2 * 3600.0
    assert leave_mode(SPEC, "", [], NOW).took_seconds == 0.0


def test_modes_that_follow_become_the_present_one_in_their_order() -> None:
    """Each knows what those before it have taken and cost."""
    left = leave_mode(SPEC, "succeeded", [rental(0, None)], NOW + HOUR)
    second = enter_next_mode(SPEC, left, NOW + HOUR)
    assert (second.sequence, second.job.mode, [each.mode for each in second.later]) == (1, "fast", ["full"])
    assert (second.earlier[0].seconds, second.earlier[0].outcome) == (3600.0, "succeeded")
    had = list_modes(second, "running", [rental(0, None)], NOW + 4 * HOUR)
    assert [(each.mode, each.seconds, str(each.usd), each.outcome, each.tasks) for each in had] == [
        ("validate", 3600.0, "2", "succeeded", ()),
        ("fast", 3 * 3600.0, "6", "running", ("a", "b")),
    ]


def test_a_mode_that_is_interrupted_was_stopped() -> None:
    """Nothing follows a mode that was chosen by hand."""
    left = leave_mode(SPEC, "running", [], NOW)
    assert (left.outcome, left.seconds, str(left.usd)) == ("stopped", 0.0, "0")
    assert leave_mode(SPEC, "", [], NOW).outcome == ""
    chosen = enter_mode(SPEC, job("full"), left, NOW, continues=True)
    assert (chosen.later, chosen.continues, chosen.mode_since) == ((), True, NOW)


def test_modes_that_the_machine_has_begun_since_count() -> None:
    """An older specification never takes a run back; flags of the command stay."""
    ahead = enter_next_mode(SPEC, EarlierMode(mode="validate"), NOW)
    seen = with_recorded_modes(LaunchSpec(run_id="fresnel-1", provider="local", job=job("validate"), keep=True), ahead)
    assert (seen.job.mode, seen.sequence, seen.keep) == ("fast", 1, True)
    assert with_recorded_modes(ahead, SPEC) is ahead


def test_the_same_mode_has_the_same_variables() -> None:
    """Their order doesn't matter; one that comes from the shell counts."""
    spec = LaunchSpec(run_id="r", provider="local", job=job("fast", envs=(("A", "1"), ("B", "2"))))
    assert is_same_mode(spec, job("fast", envs=(("B", "2"), ("A", "1"))))
    assert not is_same_mode(spec, job("full", envs=spec.job.envs))
    assert not is_same_mode(spec, job("fast", envs=(("A", "1"),)))
    assert not is_same_mode(spec, job("fast", envs=spec.job.envs, inherited=("C",)))


def test_results_of_each_mode_are_found_by_name_and_folder() -> None:
    """The newest one of a name; the first mode has no folder of its own."""
    spec = enter_next_mode(SPEC, EarlierMode(mode="validate"), NOW)
    spec = enter_mode(spec, job("validate"), EarlierMode(mode="fast", tasks=("a", "b")), NOW)
    assert [find_mode(spec, name) for name in ("validate", "3-validate", "2-fast", "1-validate")] == [2, 2, 1, 0]
    assert logs_of(spec) == {"": "3-validate/run.log"}
    assert logs_of(spec, sequence=0) == {"": "run.log"}
    assert logs_of(spec, ["b"], 1) == {"b": "2-fast/b/run.log"}
    assert logs_of(spec, (), 1) == {"": "2-fast/run.log", "a": "2-fast/a/run.log", "b": "2-fast/b/run.log"}
    assert result_folders(spec, 2) == ("3-validate",)
    assert result_folders(spec, 1) == ("2-fast/a", "2-fast/b")
    assert result_folders(spec, 0) == ("run.log", "output", "checkpoints", "checkpoints.kept", "left-behind")
    with pytest.raises(BadRequestError) as unknown:
        find_mode(spec, "full")
    assert str(unknown.value) == (
        "run fresnel-1 has had no mode 'full'\n"
        "  why: its modes: 1-validate, 2-fast, 3-validate\n"
        "  fix: name one of them"
    )
    with pytest.raises(BadRequestError) as missing:
        result_folders(spec, 1, ["c"])
    assert str(missing.value) == (
        "mode fast of run fresnel-1 has no task 'c'\n  why: its tasks: a, b\n"
        "  fix: name one of them with --task, or leave --task out"
    )


def test_the_log_of_a_task_that_a_mode_has_not_had_is_refused() -> None:
    """It would be empty; the present mode's tasks say nothing about those of an earlier one."""
    second = enter_next_mode(SPEC, leave_mode(SPEC, "succeeded", [], NOW), NOW)
    assert logs_of(second, ["a"]) == {"a": "2-fast/a/run.log"}
    with pytest.raises(BadRequestError, match="mode validate of run fresnel-1 has no task 'a'"):
        logs_of(second, ["a"], 0)
