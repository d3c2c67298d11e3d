"""The order of tasks: what may run at the same time, how long all take, how many cores they need."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import timedelta
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.errors import JobKeyError
from orchestrator.core.job import Job, Resources
from orchestrator.core.offer import Accelerators
from orchestrator.core.task import Expect, Nodes, Task
from orchestrator.core.task_order import check_tasks, expected_duration, most_cpus

HOUR = timedelta(hours=1)


def task(name: str, after: str = "", **values: object) -> Task:
    return Task(name=name, run="x", after=after, **values)  # type: ignore[arg-type]


@st.composite
def forests(draw: st.DrawFn) -> tuple[Task, ...]:
    """Tasks in any order, each of which waits for an earlier one or for none."""
    made: list[Task] = []
    for number in range(draw(st.integers(1, 7))):
        after = draw(st.sampled_from(["", *(each.name for each in made)]))
        gpus = draw(st.none() | st.frozensets(st.integers(0, 3), min_size=1, max_size=2).map(sorted).map(tuple))
        hours, cpus = draw(st.integers(0, 5)), draw(st.none() | st.integers(1, 8))
        expect = Expect(duration=hours * HOUR)
        made.append(Task(name=f"t{number}", run="x", after=after, gpus=gpus, cpus=cpus, expect=expect))
    return tuple(draw(st.permutations(made)))


def waits_for(tasks: tuple[Task, ...], later: Task, earlier: Task) -> bool:
    by_name = {each.name: each for each in tasks}
    while later.after:
        later = by_name[later.after]
        if later is earlier:
            return True
    return False


def at_the_same_time(tasks: tuple[Task, ...], group: tuple[Task, ...]) -> bool:
    return not any(waits_for(tasks, a, b) or waits_for(tasks, b, a) for a, b in combinations(group, 2))


@given(tasks=forests())
def test_two_tasks_share_a_gpu_only_if_one_waits_for_the_other(tasks: tuple[Task, ...]) -> None:
    """Compared with a search through all pairs."""
    clash = any(
        set(a.gpus or ()) & set(b.gpus or ()) and at_the_same_time(tasks, (a, b)) for a, b in combinations(tasks, 2)
    )
    with pytest.raises(JobKeyError, match="is given to task") if clash else nullcontext():
        check_tasks(Job(name="j", tasks=tasks))


@given(tasks=forests())
def test_the_cores_are_those_of_the_largest_group_that_runs_at_the_same_time(tasks: tuple[Task, ...]) -> None:
    """Compared with a search through all groups."""
    groups = (group for size in range(len(tasks) + 1) for group in combinations(tasks, size))
    totals = [sum(each.cpus or 0 for each in group) for group in groups if at_the_same_time(tasks, group)]
    assert most_cpus(Job(name="j", tasks=tasks)) == max(totals)


@given(tasks=forests())
def test_the_expected_duration_is_that_of_the_longest_chain(tasks: tuple[Task, ...]) -> None:
    """Compared with a simulation, hour by hour."""
    ends: dict[str, timedelta] = {"": timedelta(0)}
    while len(ends) <= len(tasks):
        for each in tasks:
            if each.after in ends and each.expect.duration is not None:
                ends[each.name] = ends[each.after] + each.expect.duration
    assert expected_duration(Job(name="j", tasks=tasks)) == max(ends.values())


@pytest.mark.parametrize(
    ("job", "expected"),
    [
        (Job(name="j"), None),
        (Job(name="j", tasks=(Task(run="x"),)), None),
        (Job(name="j", tasks=(Task(run="x", expect=Expect(duration=HOUR)),)), HOUR),
        (Job(name="j", tasks=(task("a", expect=Expect(duration=HOUR)), task("b"))), None),
        (Job(name="j", tasks=(task("a"), task("b")), expect=Expect(duration=HOUR)), HOUR),
        (Job(name="j", tasks=(task("a", expect=Expect(duration=2 * HOUR)),), expect=Expect(duration=HOUR)), HOUR),
    ],
)
def test_a_job_without_durations_has_no_expectation(job: Job, expected: timedelta | None) -> None:
    """One unknown task makes the whole unknown. What the job itself says of the whole run counts first."""
    assert expected_duration(job) == expected


@pytest.mark.parametrize(
    ("tasks", "says"),
    [
        (
            (task("a"), task("b", "c")),
            "`tasks.b.after`: there is no task c\n  why: the tasks are a, b\n  fix: name one of them",
        ),
        (
            (task("d", "a"), task("a", "b"), task("b", "a")),
            "`tasks.a.after`: this task would wait for itself\n"
            "  why: a waits for b waits for a\n"
            "  fix: let one of them start without `after`",
        ),
        (
            (task("a", gpus=(0, 3)), task("b", gpus=(3, 4))),
            "`tasks.b.gpus`: GPU 3 is given to task a too\n"
            "  why: both tasks run at the same time, and each GPU belongs to one\n"
            "  fix: choose other GPUs, or let one start when the other has succeeded: `after: a`",
        ),
        (
            (task("a", gpus=(0,)), task("b", gpus=(1, 2, 3))),
            "`tasks.b.gpus`: there is no GPU 2 on the machine\n"
            "  why: `accelerators` asks for h100:2: it has only GPUs 0 to 1\n"
            "  fix: name GPUs that it has, or ask for another machine with `accelerators`",
        ),
        (
            (task("a"), task("b", nodes=Nodes.HEAD)),
            "`tasks.b.nodes`: there is one machine only\n  fix: leave it out, or set `num_nodes`",
        ),
    ],
)
def test_a_mistake_is_explained(tasks: tuple[Task, ...], says: str) -> None:
    """In full; the job file's reader adds the line."""
    with pytest.raises(JobKeyError) as caught:
        check_tasks(Job(name="j", tasks=tasks, resources=Resources(accelerators=Accelerators(name="h100", count=2))))
    assert str(caught.value) == says
    assert says.startswith(f"`{'.'.join(caught.value.key_path)}`: {caught.value.fault}")


def test_tasks_of_several_machines_may_run_on_the_first_alone() -> None:
    """And the number of GPUs may be unknown until an offer is chosen."""
    check_tasks(Job(name="j", num_nodes=2, tasks=(task("a", nodes=Nodes.HEAD, gpus=(100,)),)))
