"""The laptop follows a real agent over connections that break: no line of any task is lost or repeated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

import pytest

from orchestrator.adapters.host.clock import SystemClock
from orchestrator.adapters.ledger.sqlite import SqliteLedger
from orchestrator.core.errors import UnreachableError
from orchestrator.core.machine import Machine, SshAddress
from orchestrator.core.ports import Clock, Connector, Remote
from orchestrator.core.protocol.report import MachineReport
from orchestrator.engine.steps.follow import follow
from tests.agent.box import RUN, Box
from tests.agent.several import start, task
from tests.support.fakes import MACHINE, FakeProvider, make_world

ADDRESS = SshAddress(host="127.0.0.1", port=22, user="kedge", host_key="ssh-ed25519 AAAA", key_file="/nowhere")


class Hurried(SystemClock):
    """A clock that doesn't wait."""

    def sleep(self, duration: timedelta) -> None:
        """Return at once."""


@dataclass
class Breaking:
    """Connections to an agent that break after so many lines each.

    Attributes:
        asked: the agent's arguments at each connection.
    """

    box: Box
    after: int
    asked: list[list[str]] = field(default_factory=list)

    def connect(self, _address: SshAddress) -> Remote:
        return cast("Remote", self)

    def lines(self, argv: Sequence[str]) -> Iterator[bytes]:
        self.asked.append(list(argv[1:]))
        done = self.box.call(*argv[1:])
        assert done.returncode == 0, done.stderr
        for number, line in enumerate(done.stdout.splitlines()):
            if number == self.after:
                raise UnreachableError("the connection broke")
            yield line


@pytest.fixture
def machine(box: Box, tmp_path: Path) -> Iterator[tuple[Machine, Breaking, SqliteLedger]]:
    now = datetime.now(UTC)
    made = replace(
        MACHINE, id=f"{RUN}-m1", run_id=RUN, root=str(box.root), address=ADDRESS, deadline_at=now + timedelta(hours=1)
    )
    ledger = SqliteLedger(tmp_path / "ledger", SystemClock())
    yield made, Breaking(box, after=7), ledger
    ledger.close()


def test_a_reconnection_continues_each_log_where_it_broke_off(
    box: Box, machine: tuple[Machine, Breaking, SqliteLedger]
) -> None:
    """Of all tasks, and of one of them."""
    made, breaking, ledger = machine
    start(box, *(task(name, f"for i in $(seq 9); do echo {name} $i; done") for name in ("a", "b")))
    box.await_state("succeeded")
    world = make_world(ledger, FakeProvider(there=(made,)))
    world = replace(world, connector=cast("Connector", breaking), clock=cast("Clock", Hurried()))

    def read(*names: str) -> tuple[dict[str, list[str]], MachineReport | None]:
        said: dict[str, list[str]] = {}
        report = None
        for event in follow(world, made, offsets={}, tasks=names, until_over=True):
            report = event.report or report
            if event.line is not None:
                said.setdefault(event.task, []).append(event.line.split(" ", 1)[1])
        return said, report

    said, report = read()
    for name in ("a", "b"):
        assert [line for line in said[name] if line.startswith(name)] == [f"{name} {number}" for number in range(1, 10)]
    assert len(breaking.asked) > 3, "the connection broke often"
    assert any("a=" in word for word in breaking.asked[-1])
    assert any("b=" in word for word in breaking.asked[-1])
    assert report is not None
    assert {name: each.command.state for name, each in report.each_task.items()} == dict.fromkeys("ab", "succeeded")
    only, _ = read("b")
    assert (only["b"], only.get("a")) == (said["b"], None)
