"""How a plan's lines read, for actions that no plan in tests/plans has."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest

from orchestrator.core.action_words import describe
from orchestrator.core.actions import CreateMachine, SendData, StageData, StartCommand, StopCommand
from orchestrator.core.errors import UnreachableError
from orchestrator.core.job import DataMount, Job, Resources, VolumeSpec
from orchestrator.core.offer import Offer
from orchestrator.core.plan import Plan, refuse_snapshot
from orchestrator.core.planning.notes import change_notes
from orchestrator.core.task import SupervisorKind, Task
from tests.support.fakes import MACHINE
from tests.support.orders import make_offer

OFFER = make_offer("aws", "big", "here", disk_gib=8, usd_per_hour=Decimal(1))
LINKED = DataMount(source="/data/sets", target="sets", written="~/sets", follows=("a", "b"))


def test_a_command_that_is_killed_loses_its_checkpoint_and_the_plan_says_so() -> None:
    """One that is stopped writes it first."""
    stop = StopCommand(machine_id="m")
    assert describe(stop) == "stop the command: it checkpoints, then exits"
    assert describe(StopCommand(machine_id="m", now=True)) == "kill the command: at once, without a checkpoint"


def test_tasks_are_started_and_stopped_by_their_names() -> None:
    """Without names, all are meant: a job with one command has none."""
    start = StartCommand(machine_id="m", supervisor=SupervisorKind.TMUX, resumes=False)
    assert describe(start) == "start the command: tmux"
    assert describe(replace(start, tasks=("a",))) == "start task a: tmux"
    assert describe(replace(start, tasks=("a",), resumes=True)) == "go on with task a from the newest checkpoint: tmux"
    stop = StopCommand(machine_id="m", tasks=("a",))
    assert describe(stop) == "stop task a: it checkpoints, then exits"
    assert describe(replace(stop, tasks=("a", "b"))) == "stop tasks a, b: they checkpoint, then exit"
    assert describe(replace(stop, tasks=("a", "b"), now=True)) == "kill tasks a, b: at once, without a checkpoint"


def test_data_says_which_links_it_comes_through() -> None:
    """What is sent lies elsewhere than somebody reads in the job file."""
    source = "/data/sets (which the link ~/sets leads to), with what its links lead to in a, b"
    assert describe(StageData(machine_id="m", mount=LINKED)) == f"stage data for sets in the object store: {source}"
    assert describe(SendData(machine_id="m", mount=LINKED)) == f"send data to sets: {source}"


def test_data_that_mirrors_a_folder_says_that_it_removes_the_rest() -> None:
    """Files of the machine's own go."""
    plain = DataMount(source="/data/sets", target="sets")
    sent = SendData(machine_id="m", mount=plain, delete=True)
    assert describe(sent) == "send data to sets: /data/sets, removing what isn't here"


def plan(*offers: Offer) -> Plan:
    create = CreateMachine(machine_id="m", offers=offers, lifetime=timedelta(hours=1), starts=False)
    return Plan(run_id="r", actions=(create,), basis="prices: of Monday")


def test_a_plan_with_prices_of_a_snapshot_rents_nothing() -> None:
    """One such offer among new ones is enough."""
    with pytest.raises(UnreachableError) as caught:
        refuse_snapshot(plan(OFFER, replace(OFFER, live=False)))
    assert str(caught.value) == (
        "nothing is rented at the prices of a snapshot\n"
        "  why: prices: of Monday\n"
        "  fix: sign in, or check the network, and run it again; `kedge plan` and `kedge offers` need neither"
    )


def test_a_plan_with_current_prices_or_without_a_machine_is_not_refused() -> None:
    """Only renting needs current prices."""
    refuse_snapshot(plan(OFFER))
    refuse_snapshot(Plan(run_id="r", actions=(StopCommand(machine_id="m"),)))


@pytest.mark.parametrize(
    ("before", "after", "notes"),
    [
        (Job(name="a", tasks=(Task(run="x"),)), Job(name="a", tasks=(Task(run="x"),)), ()),
        (
            Job(name="a", tasks=(Task(run="x"),)),
            Job(name="a", tasks=(Task(run="y"),)),
            ("the command is changed from `x` to `y`",),
        ),
        (
            Job(name="a", tasks=(Task(run="x", resume="x --resume"),)),
            Job(name="a", tasks=(Task(run="x"),)),
            ("`resume` is given up: `x --resume` isn't run any more",),
        ),
        (Job(name="a", tasks=(Task(run="x", resume="r"),)), Job(name="a", tasks=(Task(run="x", resume="s"),)), ()),
        (
            Job(name="a", tasks=(Task(name="b", run="x"), Task(name="c", run="x", resume="r"))),
            Job(name="a", tasks=(Task(name="b", run="y"), Task(name="c", run="x"))),
            (
                "task b: the command is changed from `x` to `y`",
                "task c: `resume` is given up: `r` isn't run any more",
            ),
        ),
    ],
)
def test_a_changed_command_is_shown(before: Job, after: Job, notes: tuple[str, ...]) -> None:
    """With the old one, and with a `resume` that was removed; a new `resume` is in the plan anyway."""
    assert change_notes(before, after) == notes


def test_data_within_a_volume_is_on_it() -> None:
    """A folder whose name only begins like the volume's isn't."""
    job = Job(name="a", resources=Resources(volumes=(VolumeSpec(name="v", target="disk", size_gib=1),)))
    assert job.is_on_volume(DataMount(source="/s", target="disk/sets"))
    assert not job.is_on_volume(DataMount(source="/s", target="disk2/sets"))


def test_a_machine_without_an_address_can_not_be_reached_yet() -> None:
    """Its boot takes minutes."""
    with pytest.raises(UnreachableError) as caught:
        replace(MACHINE, address=None).require_address()
    assert str(caught.value) == f"machine {MACHINE.id} has no address yet\n  fix: wait until it has booted"
