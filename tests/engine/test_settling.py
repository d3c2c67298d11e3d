"""Many runs are reconciled with one list of each provider, and one provider's trouble stays its own."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import cast

import pytest

from orchestrator.adapters.host.clock import SystemClock
from orchestrator.adapters.ledger.sqlite import SqliteLedger
from orchestrator.core.errors import KedgeError
from orchestrator.core.job import Job, LaunchSpec
from orchestrator.core.ledger import RunRecord, RunStage
from orchestrator.core.machine import Machine, MachineState, SshAddress
from orchestrator.core.ports import Completed, Connector, Remote
from orchestrator.core.task import Task
from orchestrator.engine.observing.listings import Listings
from orchestrator.engine.observing.settling import settle_runs
from orchestrator.engine.observing.status import observe_runs
from orchestrator.engine.world import World
from tests.support.clocks import FakeClock
from tests.support.fakes import MACHINE, NOW, FakeProvider, make_world


@dataclass
class Counted(FakeProvider):
    """Counts what it is asked."""

    lists: int = 0
    looks: int = 0
    error: Exception | None = None
    waits_for: threading.Event | None = None

    def machines(self) -> Sequence[Machine]:
        self.lists += 1
        if self.waits_for is not None:
            self.waits_for.wait(60)
        if self.error is not None:
            raise self.error
        return super().machines()

    def describe(self, machine_id: str) -> Machine | None:
        self.looks += 1
        return super().describe(machine_id)


@dataclass
class Desk:
    """A ledger with runs at two providers."""

    ledger: SqliteLedger
    one: Counted = field(default_factory=lambda: Counted(name="one"))
    two: Counted = field(default_factory=lambda: Counted(name="two"))

    def world(self, provider: Counted) -> World:
        return make_world(self.ledger, provider)

    def open(self, provider: Counted, run_id: str, machines: int = 2) -> RunRecord:
        """Record a run with machines that its provider has."""
        job = Job(name="digits", tasks=(Task(run="train"),), num_nodes=machines)
        self.ledger.open_run(LaunchSpec(run_id=run_id, provider=provider.name, job=job), NOW)
        for rank in range(machines):
            name = f"{run_id}-m{rank + 1}"
            machine = replace(MACHINE, id=name, run_id=run_id, provider=provider.name, rank=rank, address=None)
            self.ledger.put_machine(machine)
            provider.there = (*provider.there, machine)
        return self.record(run_id)

    def record(self, run_id: str) -> RunRecord:
        found = self.ledger.run(run_id)
        assert found is not None
        return found


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    ledger = SqliteLedger(tmp_path, SystemClock())
    yield Desk(ledger)
    ledger.close()


def test_each_provider_is_asked_for_one_list(desk: Desk) -> None:
    """Whatever the number of runs and machines."""
    groups = [
        (desk.world(each), [desk.open(each, f"{each.name}-{number}") for number in range(5)])
        for each in (desk.one, desk.two)
    ]
    settled = settle_runs(groups)
    assert [run.record.run_id for run in settled.runs] == [run.run_id for _, runs in groups for run in runs]
    assert [len(run.machines) for run in settled.runs] == [2] * 10
    assert [run.findings for run in settled.runs] == [()] * 10
    assert [(each.lists, each.looks) for each in (desk.one, desk.two)] == [(1, 0), (1, 0)]
    assert settled.unrecorded == ()


def test_a_provider_that_fails_does_not_hide_the_runs_of_others(desk: Desk) -> None:
    """Its own run is shown as the ledger has it, with a finding; the machine that another has lost is noticed."""
    here, there = desk.open(desk.one, "here-1"), desk.open(desk.two, "there-1")
    desk.one.there = desk.one.there[1:]
    desk.two.error = KedgeError("two is closed", why="no credentials")
    seen = observe_runs([(desk.world(desk.one), [here]), (desk.world(desk.two), [there])])
    assert [[each.id for each in status.machines] for status in seen.statuses] == [
        ["here-1-m2"],
        ["there-1-m1", "there-1-m2"],
    ]
    assert any("here-1-m1 is gone" in line for line in seen.statuses[0].findings)
    assert seen.statuses[1].findings[0] == (
        "two could not be asked, so this is what the ledger has: two is closed; no credentials"
    )
    assert list(seen.errors) == ["two"]


def test_a_machine_that_has_lost_its_facts_keeps_its_rank(desk: Desk) -> None:
    """The provider doesn't know it any more, for example because the machine's folder is damaged; the ledger does."""
    record = desk.open(desk.one, "one-1", machines=3)
    desk.one.there = tuple(replace(machine, state=MachineState.UNKNOWN, rank=0) for machine in desk.one.there)
    (run,) = settle_runs([(desk.world(desk.one), [record])]).runs
    assert [(machine.rank, machine.state) for machine in run.machines] == [
        (rank, MachineState.UNKNOWN) for rank in range(3)
    ]


def test_a_provider_that_is_silent_delays_the_others_by_a_time_limit_at_most(desk: Desk) -> None:
    """The others' lists come at once, and its own becomes an error."""
    desk.two.waits_for = threading.Event()
    desk.open(desk.one, "here-1")
    clock = FakeClock()
    listings = Listings()
    for each in (desk.two, desk.one):
        listings.request(replace(desk.world(each), clock=clock))
    arrivals = listings.arrivals()
    first = next(arrivals)
    clock.time += timedelta(minutes=1)
    (second,) = arrivals
    desk.two.waits_for.set()
    assert [each.id for each in first.machines] == ["here-1-m1", "here-1-m2"]
    assert first.error is None
    assert "two doesn't answer" in str(second.error)


def test_a_run_that_another_command_acts_on_is_left_alone(desk: Desk) -> None:
    """Its differences are shown, and nothing is recorded; the other run is settled."""
    busy, free = desk.open(desk.one, "busy-1"), desk.open(desk.one, "free-1")
    desk.one.there = ()
    with desk.ledger.lock("busy-1"):
        settled = settle_runs([(desk.world(desk.one), [busy, free])])
    assert "another kedge command is at work on this run" in settled.runs[0].findings
    assert "machine busy-1-m1 is in the ledger but gone at one" in settled.runs[0].findings
    assert [len(run.machines) for run in settled.runs] == [2, 0]


def test_an_ended_run_with_a_machine_is_live_again(desk: Desk) -> None:
    """It may cost money. An ended run without one isn't locked or looked at."""
    desk.open(desk.one, "back-1", machines=1)
    desk.open(desk.one, "over-1", machines=0)
    for run_id in ("back-1", "over-1"):
        desk.ledger.end_run(run_id, NOW)
    desk.ledger.record_machine_end("back-1-m1", NOW)
    settled = settle_runs([(desk.world(desk.one), [desk.record("back-1"), desk.record("over-1")])])
    assert [run.record.stage for run in settled.runs] == [RunStage.LIVE, RunStage.ENDED]
    assert [[each.id for each in run.machines] for run in settled.runs] == [["back-1-m1"], []]
    assert settled.unrecorded == ()


def test_machines_of_no_live_run_are_listed_of_every_provider(desk: Desk) -> None:
    """Also of one that has no run to show."""
    here = desk.open(desk.one, "here-1")
    desk.two.there = (replace(MACHINE, id="stray-1-m1", run_id="stray-1", provider="two"),)
    settled = settle_runs([(desk.world(desk.one), [here]), (desk.world(desk.two), [])])
    assert [each.id for each in settled.unrecorded] == ["stray-1-m1"]


def test_a_bug_is_raised(desk: Desk) -> None:
    """In whichever thread it happens."""
    runs = [(desk.world(each), [desk.open(each, f"{each.name}-1")]) for each in (desk.one, desk.two)]
    desk.two.error = ZeroDivisionError("a bug")
    with pytest.raises(ZeroDivisionError):
        settle_runs(runs)


@dataclass
class OpenAgent:
    """A machine to which a connection is open; its report comes once `may_answer` is set.

    Attributes:
        was_asked: for its report.
        has_answered: its report was sent.
    """

    may_answer: threading.Event = field(default_factory=threading.Event)
    was_asked: threading.Event = field(default_factory=threading.Event)
    has_answered: threading.Event = field(default_factory=threading.Event)

    def opened(self, _address: SshAddress) -> Remote:
        return cast("Remote", self)

    def run(self, _argv: Sequence[str], **_more: object) -> Completed:
        self.was_asked.set()
        self.may_answer.wait(60)
        self.has_answered.set()
        now = NOW.timestamp()
        said = {"machine": "here-1-m1", "run": "here-1", "now": now, "created": now, "deadline": now, "heartbeat": now}
        return Completed(exit_code=0, stdout=json.dumps({**said, "usd_per_hour": "1"}).encode(), stderr=b"")


def open_run(desk: Desk, agent: OpenAgent) -> tuple[World, RunRecord]:
    """Record a run whose machine has an open connection."""
    record = desk.open(desk.one, "here-1", machines=1)
    address = SshAddress(host="192.0.2.1", port=22, user="job", host_key="ssh-ed25519 AAAA", key_file="/nowhere")
    machine = replace(desk.one.there[0], address=address)
    desk.one.there = (machine,)
    desk.ledger.put_machine(machine)
    return replace(desk.world(desk.one), connector=cast("Connector", agent)), record


def test_machines_are_asked_while_their_provider_is(desk: Desk) -> None:
    """The provider answers only after the machine was asked, over a connection that an earlier command has left."""
    agent = OpenAgent()
    agent.may_answer.set()
    desk.one.waits_for = agent.was_asked
    world, record = open_run(desk, agent)
    (status,) = observe_runs([(world, [record])]).statuses
    assert agent.was_asked.is_set()
    assert [report.machine for report in status.reports] == ["here-1-m1"]


def test_a_machine_that_is_gone_is_not_waited_for(desk: Desk) -> None:
    """It was asked, and will never answer."""
    agent = OpenAgent()
    world, record = open_run(desk, agent)
    desk.one.there = ()
    (status,) = observe_runs([(world, [record])]).statuses
    assert (status.machines, status.reports) == ((), ())
    assert any("here-1-m1 is gone" in line for line in status.findings)
    assert not agent.has_answered.is_set()
    agent.may_answer.set()
