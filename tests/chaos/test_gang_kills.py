"""A launch of several machines is killed at each write to the ledger; resume and reap leave all of them, or none."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from orchestrator.app.launch.recovering import is_lost
from orchestrator.core.actions import StartCommand
from orchestrator.core.job import LaunchSpec
from orchestrator.core.machine import EndedBy, MachineEnd, newest_gang
from orchestrator.engine.reap import reap, survey_provider
from tests.support.clocks import FakeClock
from tests.support.fake_cloud.gangs import (
    HERE,
    JOB,
    RUN,
    SPEC,
    Cloud,
    CrashingLedger,
    Desk,
    Killed,
    ids,
    ignore,
    refuse,
)
from tests.support.samples import part_of


@pytest.fixture
def cloud() -> Cloud:
    return Cloud(clock=FakeClock())


@pytest.fixture
def desk(tmp_path: Path, cloud: Cloud) -> Iterator[Desk]:
    made = Desk(tmp_path, cloud)
    yield made
    made.ledger.close()


RECOVERED = replace(SPEC, recover=True, until=FakeClock().now() + timedelta(hours=1))


def launch_killed(desk: Desk, moment: str, number: int, spec: LaunchSpec = SPEC) -> bool:
    """Launch, kill the launch at a write, and return whether it was killed; what it had asked for is carried out."""
    whole = desk.ledger
    desk.__dict__["ledger"] = CrashingLedger(whole, moment, number)
    try:
        desk.launch(spec)
    except Killed:
        return True
    finally:
        desk.__dict__["ledger"] = whole
    return False


LAUNCH_WRITES = 1 + 3 * 3 + 3 * 3 + 3 * 2 + 1
"""open_run; intent, machine and outcome of each creation; of each boot; intent and outcome of each start; the state."""
KILLS = [(moment, number) for moment in ("before", "after") for number in range(1, LAUNCH_WRITES + 1)]
SAMPLE = 18
"""How many of them each run tries; `make nightly` tries all."""


@pytest.mark.parametrize(("moment", "number"), part_of(KILLS, SAMPLE))
def test_a_killed_launch_is_completed_by_resume(desk: Desk, moment: str, number: int) -> None:
    """It has three machines with one offer then, and teardown leaves none."""
    assert launch_killed(desk, moment, number)
    if desk.ledger.run(RUN) is not None:
        desk.reconcile(desk.named_run(RUN))
    desk.launch()
    machines = desk.ledger.machines(RUN, live_only=True)
    assert [each.rank for each in machines] == [0, 1, 2]
    assert [each.id for each in machines] == desk.cloud.names()
    assert {desk.cloud.states[each.id] for each in machines} == {"running"}
    desk.tear_down()
    assert (desk.cloud.there, desk.live(), desk.ledger.open_intents(RUN)) == ((), [], ())


@pytest.mark.parametrize(("moment", "number"), part_of(KILLS, SAMPLE))
def test_a_killed_launch_leaves_all_machines_at_work_or_none_after_a_reap(desk: Desk, moment: str, number: int) -> None:
    """A part of the gang is never left billing."""
    assert launch_killed(desk, moment, number)
    world = desk.world("fake")
    for reaping in survey_provider(world, everyone=False).reapings:
        reap(world, reaping, ignore)
    started = {each.subject for each in desk.ledger.intents(RUN) if each.kind == StartCommand.__name__}
    assert desk.live() == desk.cloud.names()
    assert desk.cloud.names() == (ids(1, 2, 3) if started == set(ids(1, 2, 3)) else [])


def test_every_write_of_a_launch_is_a_kill(desk: Desk) -> None:
    """The test fails if a launch makes one more write, which the kills above would miss."""
    assert not launch_killed(desk, "before", LAUNCH_WRITES + 1)


def recover_killed(desk: Desk, lost: tuple[int, ...], moment: str, number: int) -> bool:
    """Launch, lose machines, and kill the command that replaces them at a write; return whether it was killed."""
    desk.launch(RECOVERED)
    for name in ids(*lost):
        desk.cloud.ends[name] = MachineEnd(by=EndedBy.PROVIDER, says="spot")
        desk.cloud.lose(name)
    assert is_lost(desk, desk.named_run(RUN), desk.said.append)
    return launch_killed(desk, moment, number, RECOVERED)


RECOVERY_WRITES = 1 + 3 + 3 + 2 * 2 + 3 * 2 + 1 + 1
"""open_run; a creation; a boot; two stops; three starts; the state of the head after its stop, and after its start."""
RECOVERY_KILLS = [
    (lost, moment, number)
    for lost in ((1,), (2,))
    for moment in ("before", "after")
    for number in range(1, RECOVERY_WRITES + (lost == (2,)))
]


@pytest.mark.parametrize(("lost", "moment", "number"), part_of(RECOVERY_KILLS, SAMPLE))
def test_a_killed_replacement_is_completed(desk: Desk, lost: tuple[int, ...], moment: str, number: int) -> None:
    """By the next recovery: the machines that were left are there, and all of them know all addresses."""
    assert recover_killed(desk, lost, moment, number)
    if is_lost(desk, desk.named_run(RUN), desk.said.append) or len(desk.cloud.states) < len(desk.cloud.there):
        desk.launch(RECOVERED)
    gang = newest_gang(desk.ledger.machines(RUN, live_only=True))
    assert [each.rank for each in gang] == [0, 1, 2]
    assert sorted(each.id for each in gang) == sorted(desk.cloud.names()) == sorted(desk.live())
    assert set(ids(*{1, 2, 3} - set(lost))) < set(desk.cloud.names())
    assert {desk.cloud.states[each.id] for each in gang} == {"running"}
    addresses = [each.private_address for each in gang]
    assert [desk.cloud.told[each.id] for each in gang] == [addresses] * 3
    desk.tear_down()
    assert (desk.cloud.there, desk.live(), desk.ledger.open_intents(RUN)) == ((), [], ())


@pytest.mark.parametrize(("lost", "moment", "number"), part_of(RECOVERY_KILLS, SAMPLE))
def test_a_killed_replacement_leaves_no_machine_that_was_never_started(
    desk: Desk, lost: tuple[int, ...], moment: str, number: int
) -> None:
    """After a reap, the machines that were left are as they were, or all are at work, or none is there."""
    assert recover_killed(desk, lost, moment, number)
    world = desk.world("fake")
    for reaping in survey_provider(world, everyone=False).reapings:
        reap(world, reaping, ignore)
    left = [number for number in (1, 2, 3) if number not in lost]
    assert desk.live() == desk.cloud.names()
    assert desk.cloud.names() in (ids(*left), ids(*left, 4), [])
    started = {each.subject for each in desk.ledger.intents(RUN) if each.kind == StartCommand.__name__}
    assert started >= set(desk.cloud.names())
    assert {desk.cloud.states[name] for name in ids(*left) if name in desk.cloud.names()} <= {"running"}


@pytest.mark.parametrize("lost", [(1,), (2,)])
def test_every_write_of_a_replacement_is_a_kill(desk: Desk, lost: tuple[int, ...]) -> None:
    """The test fails if it makes one more write, which the kills above would miss."""
    writes = RECOVERY_WRITES - 1 + (lost == (2,))
    assert not recover_killed(desk, lost, "before", writes + 1)


REFUSED_WRITES = 1 + 3 + 3 + 2 + 2 * 3
"""open_run; two creations; the refused one; intent, end and outcome of each end."""


@pytest.mark.parametrize("number", range(7, REFUSED_WRITES + 1))
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_launch_that_is_killed_while_it_gives_up_an_offer_is_cleaned_up(desk: Desk, moment: str, number: int) -> None:
    """By reap, and by resume, which ends the rest before it rents anything."""
    refuse(desk.cloud, 3, HERE)
    assert launch_killed(desk, moment, number)
    world = desk.world("fake")
    for reaping in survey_provider(world, everyone=False).reapings:
        reap(world, reaping, ignore)
    assert (desk.cloud.there, desk.live()) == ((), [])
    spec = desk.named_run(RUN).spec
    desk.launch(spec)
    assert len(desk.cloud.there) == JOB.num_nodes
