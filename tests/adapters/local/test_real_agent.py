"""The real agent on a local machine: it reports, and keeps the deadline when nothing else does."""

from __future__ import annotations

import os
import signal

from orchestrator.adapters.cloud.boot.bootstrap_bundle import agent_archive
from orchestrator.core.protocol.report import parse_report
from tests.adapters.local.box import Box, eventually

ID = "run-1a2b-m1"


def test_the_agent_reports_on_a_local_machine(box: Box) -> None:
    """Its launcher works over SSH, its watch sends heartbeats, and it knows its machine's deadline."""
    machine = box.provider().create(box.order(ID, agent_archive=agent_archive()))
    eventually(lambda: parse_report(box.ssh(machine, "kedge-agent report").encode()).heartbeat > 0, "the watch beats")
    report = parse_report(box.ssh(machine, "kedge-agent report").encode())
    assert (report.machine, report.run) == (ID, "run-1a2b")
    assert report.deadline_at == machine.deadline_at.timestamp()


def test_the_agent_keeps_the_deadline_after_init_was_killed(box: Box) -> None:
    """The agent is the second guard, and ends the machine as completely as init does."""
    box.provider().create(box.order(ID, agent_archive=agent_archive(), lifetime_seconds=15))
    init = box.folder(ID).init()
    assert init is not None
    os.kill(init.pid, signal.SIGKILL)
    eventually(lambda: box.leftovers() == [], "the machine goes")
    assert box.provider().describe(ID) is None
