"""Before a machine ends, its agent uploads the end of the run; there is no paid wait for a dead agent."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from orchestrator.adapters.host.clock import SystemClock
from orchestrator.adapters.ledger.sqlite import SqliteLedger
from orchestrator.adapters.store.folder import FolderBucket
from orchestrator.adapters.store.results import Results
from orchestrator.core.actions import DestroyMachine
from orchestrator.core.errors import StillBillingError
from orchestrator.core.job import Job, LaunchSpec
from orchestrator.core.machine import EndedBy, Machine, MachineEnd, MachineState, SshAddress
from orchestrator.core.ports import Completed, Connector, Remote
from orchestrator.core.task import Task
from orchestrator.engine.events import Remark
from orchestrator.engine.steps.end_machine import GONE, Ending, end_machines
from orchestrator.engine.world import World
from tests.support.clocks import FakeClock
from tests.support.fakes import MACHINE, NOW, RUN, FakeProvider, make_world

ADDRESS = SshAddress(host="127.0.0.1", port=22, user="kedge", host_key="ssh-ed25519 AAAA", key_file="/nowhere")
MINUTE = 60.0


@dataclass
class Agent:
    """An agent whose command ends after `ends` seconds; heartbeats stop after `dies`, the upload ends after `uploads`.

    If it never `beats`, nobody has recorded that the command's runner is dead: each report finds that out again.
    """

    clock: FakeClock
    dies: float = float("inf")
    beats: bool = True
    uploads: float = float("inf")
    ends: float = 0.0
    machine: Machine = MACHINE
    began: float = field(init=False)

    def __post_init__(self) -> None:
        self.began = self.clock.now().timestamp()

    def connect(self, _address: SshAddress) -> Remote:
        return cast("Remote", self)

    def forget(self, _address: SshAddress) -> None:
        """Forget nothing."""

    def run(self, _argv: Sequence[str], **_more: Any) -> Completed:
        now = self.clock.now().timestamp()
        report = {
            "machine": self.machine.id,
            "run": RUN,
            "now": now,
            "created": self.began - MINUTE,
            "deadline": self.began + 60 * MINUTE,
            "usd_per_hour": "1",
            "heartbeat": min(now, self.began + self.dies) if self.beats else 0,
            "command": self._command(now),
            "shipped": {"time": now if now >= self.began + self.uploads else self.began - MINUTE},
        }
        return Completed(exit_code=0, stdout=json.dumps(report).encode(), stderr=b"")

    def _command(self, now: float) -> dict[str, Any]:
        if not self.beats:
            return {"state": "failed", "since": now}
        has_ended = now >= self.began + self.ends
        return {"state": "stopped" if has_ended else "running", "since": self.began + has_ended * self.ends}


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[SqliteLedger]:
    opened = SqliteLedger(tmp_path / "ledger", SystemClock())
    opened.open_run(LaunchSpec(run_id=RUN, provider="fake", job=Job(name="digits", tasks=(Task(run="train"),))), NOW)
    yield opened
    opened.close()


def end(
    ledger: SqliteLedger, folder: Path, agent: Agent, *, fetched: bool = False, leaves_results: bool = False
) -> tuple[float, list[str]]:
    """End the machine; return for how many seconds it was kept, and the messages."""
    machine = replace(MACHINE, address=ADDRESS)
    ledger.put_machine(machine)
    provider = FakeProvider(there=(machine,))
    world: World = replace(
        make_world(ledger, provider),
        clock=agent.clock,
        connector=cast("Connector", agent),
        store=Results(FolderBucket(folder / "store")),
    )
    said: list[str] = []
    action = DestroyMachine(machine_id=machine.id, leaves_results=leaves_results)
    end_machines(
        world,
        RUN,
        [Ending(machine=machine, action=action, fetched=fetched)],
        lambda event: said.append(event.text) if isinstance(event, Remark) else None,
    )
    assert provider.there == ()
    return sum(agent.clock.pauses, timedelta(0)).total_seconds(), said


def test_teardown_waits_for_a_live_agent(ledger: SqliteLedger, tmp_path: Path) -> None:
    """A `resume` continues from its upload, so kedge waits even for minutes."""
    took, said = end(ledger, tmp_path, Agent(FakeClock(NOW), uploads=5 * MINUTE))
    assert 5 * MINUTE <= took < 5 * MINUTE + 1
    assert said == []


def test_there_is_no_wait_for_an_agent_without_a_heartbeat_for_a_minute(ledger: SqliteLedger, tmp_path: Path) -> None:
    """Its last heartbeat was two minutes before the teardown: the machine ends at once, and the reason is shown."""
    took, said = end(ledger, tmp_path, Agent(FakeClock(NOW), dies=-2 * MINUTE))
    assert took < 1
    assert said == ["the last results were not uploaded: its agent has had no heartbeat for 2m"]


def test_there_is_no_wait_for_an_agent_that_never_had_a_heartbeat(ledger: SqliteLedger, tmp_path: Path) -> None:
    """Nor for one that died with its command, whenever the machine says that was."""
    took, said = end(ledger, tmp_path, Agent(FakeClock(NOW), beats=False))
    assert took < 2
    assert "no heartbeat for 1m" in said[0]


def test_the_wait_for_an_agent_that_dies_meanwhile_ends_after_a_minute(ledger: SqliteLedger, tmp_path: Path) -> None:
    """Its supervisor starts another within seconds; after a minute without one, none will come."""
    took, said = end(ledger, tmp_path, Agent(FakeClock(NOW), dies=30))
    assert 30 + MINUTE <= took < 32 + MINUTE
    assert "no heartbeat for 1m" in said[0]


@pytest.mark.parametrize(("dies", "most"), [(0.0, 17.0), (float("inf"), 47.0)], ids=["dead", "slow"])
def test_after_a_fetch_the_wait_for_the_upload_is_short(
    ledger: SqliteLedger, tmp_path: Path, dies: float, most: float
) -> None:
    """Long enough for a live agent: a `resume` would continue from its upload."""
    took, said = end(ledger, tmp_path, Agent(FakeClock(NOW), dies=dies), fetched=True)
    assert most - 3 < took < most
    assert said[0].endswith("; a verified copy of the results is on this computer")


def test_a_machine_that_promises_an_upload_for_ever_is_ended(ledger: SqliteLedger, tmp_path: Path) -> None:
    """A hostile one has heartbeats and never uploads: ten minutes, or less where nobody wants its results."""
    took, said = end(ledger, tmp_path, Agent(FakeClock(NOW)))
    assert 10 * MINUTE <= took < 10 * MINUTE + 2
    assert "not within 10m" in said[0]
    took, said = end(ledger, tmp_path, Agent(FakeClock(NOW)), leaves_results=True)
    assert took < 47
    assert said == ["the last results were not uploaded: not within 45s"]


@dataclass
class SlowEnd(FakeProvider):
    """A provider that shows a machine as ending for so long after it has taken it away."""

    by: EndedBy = EndedBy.PROVIDER
    clock: FakeClock = field(default_factory=lambda: FakeClock(NOW))
    lasts: timedelta = timedelta(hours=1)

    def describe(self, machine_id: str) -> Machine | None:
        gone = self.clock.now() >= NOW + self.lasts
        return None if gone else replace(MACHINE, id=machine_id, state=MachineState.ENDING)

    def why_ended(self, machine_id: str) -> MachineEnd | None:
        return MachineEnd(by=self.by, says=machine_id)


def end_ending(ledger: SqliteLedger, provider: SlowEnd) -> tuple[bool, float]:
    """End a machine that is ending already; return whether it is gone, and for how many seconds kedge waited."""
    machine = replace(MACHINE, address=ADDRESS)
    ledger.put_machine(machine)
    agent = cast("Connector", Agent(provider.clock))
    world: World = replace(make_world(ledger, provider), clock=provider.clock, connector=agent)
    action = DestroyMachine(machine_id=machine.id, is_ending=True)
    (note,) = end_machines(world, RUN, [Ending(machine=machine, action=action)], lambda _event: None)
    return note == GONE, sum(provider.clock.pauses, timedelta(0)).total_seconds()


def test_a_run_that_continues_elsewhere_does_not_wait_for_a_machine_that_was_taken_away(ledger: SqliteLedger) -> None:
    """It may be shutting down for minutes; its agent isn't asked either. The ledger keeps it until it is gone."""
    is_gone, took = end_ending(ledger, SlowEnd())
    assert (is_gone, took < MINUTE) == (False, True)
    assert [each.id for each in ledger.machines(RUN, live_only=True)] == [MACHINE.id]


def test_a_machine_that_was_taken_away_and_ends_at_once_is_gone(ledger: SqliteLedger) -> None:
    """Its bill ends in the ledger."""
    is_gone, took = end_ending(ledger, SlowEnd(lasts=timedelta(seconds=5)))
    assert (is_gone, took < 10) == (True, True)
    assert ledger.machines(RUN, live_only=True) == ()


def test_a_machine_that_is_only_switched_off_must_be_gone_first(ledger: SqliteLedger) -> None:
    """It bills until it is deleted."""
    with pytest.raises(StillBillingError):
        end_ending(ledger, SlowEnd(by=EndedBy.ITSELF))


@dataclass
class Gang:
    """Connects to the agents of several machines, each at an address of its own."""

    agents: dict[str, Agent]

    def connect(self, address: SshAddress) -> Remote:
        return cast("Remote", self.agents[address.host])

    def forget(self, _address: SshAddress) -> None:
        """Forget nothing."""


@pytest.mark.parametrize(("ends", "expected"), [(20.0, 30.0), (10 * MINUTE, MINUTE)])
def test_the_other_machines_of_a_run_end_after_the_head(
    ledger: SqliteLedger, tmp_path: Path, ends: float, expected: float
) -> None:
    """Their commands wait for the head's, and then upload; a command that never ends isn't waited for."""
    clock = FakeClock(NOW)
    head, other = (
        replace(MACHINE, id=f"{RUN}-m{rank + 1}", rank=rank, address=replace(ADDRESS, host=f"127.0.0.{rank + 2}"))
        for rank in (0, 1)
    )
    agents = {
        "127.0.0.2": Agent(clock, uploads=1, machine=head),
        "127.0.0.3": Agent(clock, uploads=30, ends=ends, machine=other),
    }
    provider = FakeProvider(there=(head, other))
    for machine in provider.there:
        ledger.put_machine(machine)
    world = replace(
        make_world(ledger, provider),
        clock=clock,
        connector=cast("Connector", Gang(agents)),
        store=Results(FolderBucket(tmp_path / "store")),
    )
    endings = [Ending(machine=each, action=DestroyMachine(machine_id=each.id)) for each in (head, other)]
    end_machines(world, RUN, endings, lambda _: None)
    took = sum(clock.pauses, timedelta(0)).total_seconds()
    assert expected <= took < expected + 3
