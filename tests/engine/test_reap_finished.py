"""If machines can't end themselves, reaping ends the machine of a finished command; it asks the machine over SSH."""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from orchestrator.adapters.host.clock import SystemClock
from orchestrator.adapters.ledger.sqlite import SqliteLedger
from orchestrator.core.actions import StartCommand
from orchestrator.core.errors import UnreachableError
from orchestrator.core.job import Job, LaunchSpec
from orchestrator.core.ledger import RunStage
from orchestrator.core.machine import SshAddress
from orchestrator.core.ports import Completed, Connector, Remote
from orchestrator.core.protocol.report import RunState
from orchestrator.core.task import SupervisorKind, Task
from orchestrator.engine.reap import reap, survey_provider
from orchestrator.engine.world import World
from tests.support.fakes import M1, NOW, RUN, FakeProvider, make_world
from tests.support.fakes import MACHINE as STARTED

ADDRESS = SshAddress(host="127.0.0.1", port=22, user="kedge", host_key="ssh-ed25519 AAAA", key_file="/nowhere")
MACHINE = replace(STARTED, address=ADDRESS, created_at=NOW - timedelta(hours=2))
MINUTE = 60.0


@dataclass
class Agent:
    """An agent whose command ended ten minutes ago, and whose results were uploaded then.

    Attributes:
        broken: why it can't be reached; None for a machine that answers.
        asked: how many times it was asked.
    """

    state: str = "succeeded"
    broken: Exception | None = None
    asked: int = field(default=0, init=False)

    def connect(self, _address: SshAddress) -> Remote:
        self.asked += 1
        if self.broken:
            raise self.broken
        return cast("Remote", self)

    def forget(self, _address: SshAddress) -> None:
        """Forget nothing."""

    def run(self, _argv: Sequence[str], **_more: Any) -> Completed:
        now = NOW.timestamp()
        report = {
            "machine": M1,
            "run": RUN,
            "now": now,
            "created": now - 120 * MINUTE,
            "deadline": now + 60 * MINUTE,
            "usd_per_hour": "1",
            "command": {"state": self.state, "since": now - 10 * MINUTE},
            "shipped": {"time": now - 9 * MINUTE},
        }
        return Completed(exit_code=0, stdout=json.dumps(report).encode(), stderr=b"")


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[SqliteLedger]:
    """The ledger of a laptop with one run, whose command was started and left alone."""
    opened = SqliteLedger(tmp_path, SystemClock())
    opened.open_run(
        LaunchSpec(run_id=RUN, provider="fake", job=Job(name="digits", tasks=(Task(run="train"),)), recover=True), NOW
    )
    opened.put_machine(MACHINE)
    opened.intend(RUN, StartCommand(machine_id=M1, supervisor=SupervisorKind.TMUX, resumes=False), NOW)
    yield opened
    opened.close()


def reap_all(world: World) -> None:
    """Reap all findings."""
    for reaping in survey_provider(world, everyone=False).reapings:
        if reaping.acts:
            reap(world, reaping, lambda _event: None)


def reap_once(
    ledger: SqliteLedger, agent: Agent, *, ends_by_itself: bool = False, busy: bool = False
) -> tuple[bool, RunStage, str]:
    """Reap; return whether the machine is left, and the run's stage and outcome."""
    cloud = FakeProvider(there=(MACHINE,), ends_by_itself=ends_by_itself)
    world = replace(make_world(ledger, cloud), connector=cast("Connector", agent))
    with ledger.lock(RUN) if busy else nullcontext():
        reap_all(world)
    record = ledger.run(RUN)
    assert record is not None
    return bool(cloud.there), record.stage, record.outcome


@pytest.mark.parametrize("state", [RunState.SUCCEEDED, RunState.FAILED])
def test_a_machine_that_cannot_end_itself_is_ended_after_its_command(ledger: SqliteLedger, state: RunState) -> None:
    """No command follows it, and its deadline is an hour away; the finished run isn't recovered."""
    assert reap_once(ledger, Agent(state)) == (False, RunStage.ENDED, state)


@pytest.mark.parametrize(
    "agent", [Agent("running"), Agent("stopped"), Agent(broken=UnreachableError("nobody answers"))]
)
def test_a_machine_that_does_not_report_that_it_is_done_stays(ledger: SqliteLedger, agent: Agent) -> None:
    """It is running, may be started again, or doesn't answer: its deadline ends it."""
    left, stage, _ = reap_once(ledger, agent)
    assert (left, stage) == (True, RunStage.LIVE)
    assert agent.asked


def test_a_machine_that_ends_itself_is_not_asked(ledger: SqliteLedger) -> None:
    """Its agent ends it by the same rule."""
    agent = Agent()
    assert reap_once(ledger, agent, ends_by_itself=True) == (True, RunStage.LIVE, "")
    assert not agent.asked


def test_a_machine_that_somebody_follows_is_not_asked(ledger: SqliteLedger) -> None:
    """A `launch` that fetches the results holds the run's lock, and ends the machine itself."""
    agent = Agent()
    assert reap_once(ledger, agent, busy=True) == (True, RunStage.LIVE, "")
    assert not agent.asked


def test_an_unreachable_machine_does_not_protect_others_past_their_deadline(ledger: SqliteLedger) -> None:
    """For example on a full disk, where its host key can't be written: others past their deadline are ended."""
    late = replace(MACHINE, id=f"{RUN}-m2", deadline_at=NOW - timedelta(hours=1))
    ledger.put_machine(late)
    agent = Agent(broken=OSError(errno.ENOSPC, "no space left"))
    cloud = FakeProvider(there=(MACHINE, late), ends_by_itself=False)
    reap_all(replace(make_world(ledger, cloud), connector=cast("Connector", agent)))
    assert cloud.there == (MACHINE,)
    assert agent.asked == 2, "the survey asks one machine, and ending the other asks the other"
