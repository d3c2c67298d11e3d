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
from orchestrator.core.job import Job, LaunchSpec
from orchestrator.core.machine import SshAddress
from orchestrator.core.ports import Completed, Connector, Remote
from orchestrator.engine.events import Remark
from orchestrator.engine.steps.end_machine import end_machine
from orchestrator.engine.world import World
from tests.support.clocks import FakeClock
from tests.support.fakes import MACHINE, NOW, RUN, FakeProvider, make_world

ADDRESS = SshAddress(host="127.0.0.1", port=22, user="kedge", host_key="ssh-ed25519 AAAA", key_file="/nowhere")
MINUTE = 60.0


@dataclass
class Agent:
    """An agent whose command has just ended; heartbeats stop after `dies`, the upload ends after `uploads` seconds.

    If it never `beats`, nobody has recorded that the command's runner is dead: each report finds that out again.
    """

    clock: FakeClock
    dies: float = float("inf")
    beats: bool = True
    uploads: float = float("inf")
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
            "machine": MACHINE.id,
            "run": RUN,
            "now": now,
            "created": self.began - MINUTE,
            "deadline": self.began + 60 * MINUTE,
            "usd_per_hour": "1",
            "heartbeat": min(now, self.began + self.dies) if self.beats else 0,
            "command": {"state": "stopped", "since": self.began} if self.beats else {"state": "failed", "since": now},
            "shipped": {"time": now if now >= self.began + self.uploads else self.began - MINUTE},
        }
        return Completed(exit_code=0, stdout=json.dumps(report).encode(), stderr=b"")


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[SqliteLedger]:
    opened = SqliteLedger(tmp_path / "ledger", SystemClock())
    opened.open_run(LaunchSpec(run_id=RUN, provider="fake", job=Job(name="digits", run="train")), NOW)
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
    end_machine(
        world,
        machine,
        lambda event: said.append(event.text) if isinstance(event, Remark) else None,
        fetched=fetched,
        leaves_results=leaves_results,
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
