"""Code and data are sent to several machines at the same time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

import msgspec
import pytest

from orchestrator.app.launch.launching import observe_and_plan
from orchestrator.core.actions import SendData, StartCommand
from orchestrator.core.errors import UnreachableError
from orchestrator.core.job import DataMount
from orchestrator.core.ledger import IntentState
from orchestrator.core.machine import Machine
from orchestrator.core.protocol.tree import Arrival
from orchestrator.core.transfers import DataMover, Progress
from orchestrator.engine.events import ActionBegan, ActionEnded, ActionProgressed, Event, Remark
from orchestrator.engine.world import World
from tests.support.clocks import FakeClock
from tests.support.fake_cloud.gangs import JOB, RUN, SPEC, Cloud, CrashingLedger, Desk, Killed, ids, ignore

_SECONDS = 60.0


@dataclass
class Mover:
    """Copies nothing; a machine's first transfer waits for those of the others.

    Attributes:
        breaks: the machine whose connection breaks at its first transfer.
        hangs: machines whose first transfer lasts until it is stopped.
    """

    breaks: str = ""
    hangs: frozenset[str] = frozenset()
    sent: list[tuple[str, str]] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)
    all_there: threading.Barrier = field(default_factory=lambda: threading.Barrier(3))

    def send(self, mount: DataMount, machine: Machine, progress: Progress, *, delete: bool = False) -> None:
        del delete
        if mount.target == "one":
            self.all_there.wait(_SECONDS)
        if machine.id == self.breaks:
            raise UnreachableError("the connection broke", why="as ordered")
        if machine.id in self.hangs:
            self._hang(machine, progress)
        progress(50, 100)
        progress(100, 100)
        self.sent.append((machine.id, mount.target))

    def _hang(self, machine: Machine, progress: Progress) -> None:
        pause = threading.Event()
        try:
            for _ in range(int(_SECONDS * 100)):
                progress(1, 100)
                pause.wait(0.01)
        except BaseException:
            self.stopped.append(machine.id)
            raise

    def fetch(self, *_args: object, **_kwargs: object) -> Arrival:
        return Arrival()


class SendingDesk(Desk):
    """A laptop that sends data."""

    def __init__(self, folder: Path, cloud: Cloud) -> None:
        super().__init__(folder / "state", cloud)
        self.mover = Mover()
        self.seen: list[Event] = []
        source = folder / "numbers.txt"
        source.write_text("1")
        mounts = tuple(DataMount(source=str(source), target=target) for target in ("one", "two"))
        self.spec = replace(SPEC, job=msgspec.structs.replace(JOB, data=mounts))

    def world(self, provider: str) -> World:
        return replace(super().world(provider), mover=cast("DataMover", self.mover))

    def go(self) -> None:
        self.apply(self.spec, observe_and_plan(self, self.spec, follow=False), self.seen.append)

    def intents(self, kind: type) -> list[tuple[str, IntentState]]:
        return [(each.subject, each.state) for each in self.ledger.intents(RUN) if each.kind == kind.__name__]


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[SendingDesk]:
    made = SendingDesk(tmp_path, Cloud(clock=FakeClock()))
    yield made
    made.ledger.close()


def test_machines_receive_at_the_same_time_each_in_the_plan_s_order(desk: SendingDesk) -> None:
    """The ledger has the intents in the plan's order; the progress is that of all together."""
    desk.go()
    for machine in ids(1, 2, 3):
        assert [target for receiver, target in desk.mover.sent if receiver == machine] == ["one", "two"]
    assert desk.intents(SendData) == [(machine, IntentState.DONE) for machine in ids(1, 2, 3) for _ in "12"]
    moved = [event for event in desk.seen if isinstance(event, ActionProgressed)]
    assert [each.done for each in moved] == sorted(each.done for each in moved)
    assert (moved[-1].done, moved[-1].total) == (600, 600)
    sends = [type(event) for event in desk.seen if isinstance(getattr(event, "action", None), SendData)]
    assert sends == [ActionBegan] * 6 + [ActionEnded] * 6


def test_one_failure_stops_the_others_and_names_its_machine(desk: SendingDesk) -> None:
    """Nothing is started, no thread is left, and no intent stays open; the next command sends again."""
    broken, done, hanging = ids(2, 1, 3)
    desk.mover = Mover(breaks=broken, hangs=frozenset({hanging}))
    threads = threading.active_count()
    with pytest.raises(UnreachableError, match="the connection broke"):
        desk.go()
    assert desk.mover.stopped == [hanging]
    assert [event.text for event in desk.seen if isinstance(event, Remark)] == [
        f"machine {broken}: the connection broke"
    ]
    states = desk.intents(SendData)
    assert {state for machine, state in states if machine in (broken, hanging)} == {IntentState.FAILED}
    assert len([state for machine, state in states if machine == done and state is IntentState.DONE]) == len(
        [target for receiver, target in desk.mover.sent if receiver == done]
    )
    assert desk.ledger.open_intents(RUN) == ()
    assert desk.intents(StartCommand) == []
    assert threading.active_count() == threads
    desk.mover = Mover()
    desk.go()
    assert [machine for machine, _ in desk.intents(StartCommand)] == ids(1, 2, 3)


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("write", range(1, 13))
def test_a_launch_that_is_killed_while_it_sends_is_continued(desk: SendingDesk, moment: str, write: int) -> None:
    """Whatever it had written to the ledger: all machines get everything, and start once."""
    desk.apply(desk.spec, observe_and_plan(desk, replace(desk.spec, job=JOB), follow=False), ignore)
    desk.cloud.states.clear()
    plan = observe_and_plan(desk, desk.spec, follow=False)
    ledger = desk.ledger
    # The first write of a plan opens the run.
    desk.ledger = CrashingLedger(ledger, moment, write + 1)  # type: ignore[assignment]
    with pytest.raises(Killed):
        desk.apply(desk.spec, plan, ignore)
    desk.ledger = ledger
    desk.mover = Mover()
    desk.go()
    assert sorted(desk.mover.sent) == [(machine, target) for machine in ids(1, 2, 3) for target in ("one", "two")]
    assert desk.cloud.states == dict.fromkeys(ids(1, 2, 3), "running")
    assert desk.live() == ids(1, 2, 3)
