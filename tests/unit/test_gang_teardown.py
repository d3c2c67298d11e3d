"""The end of several machines: what those that answer have is fetched, whichever they are."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.core.actions import FetchResults
from orchestrator.core.machine import Machine
from orchestrator.core.plan import Observed
from orchestrator.core.planning.teardown import plan_teardown
from orchestrator.core.protocol.report import MachineReport
from tests.support.fakes import MACHINE, NOW, RUN

HEAD, OTHER = (replace(MACHINE, id=f"{RUN}-m{rank + 1}", rank=rank) for rank in (0, 1))


def reported(machine_id: str) -> MachineReport:
    return MachineReport(machine=machine_id, run=RUN, created=0.0, deadline_at=1.0, usd_per_hour="1", now=0.5)


@pytest.mark.parametrize("silent", [HEAD, OTHER])
@pytest.mark.parametrize("stored", [False, True])
def test_a_silent_machine_does_not_keep_the_others_results(silent: Machine, stored: bool) -> None:
    """The plan says what becomes of its own."""
    (answering,) = {HEAD.id, OTHER.id} - {silent.id}
    report = reported(answering)
    observed = Observed(
        now=NOW, machines=(HEAD, OTHER), report=report, reports=(report,), keeps_results=stored, ends_by_itself=True
    )
    plan = plan_teardown(RUN, observed, destination="/here")
    (fetch,) = [action for action in plan.actions if isinstance(action, FetchResults)]
    assert (fetch.machine_id, fetch.without) == (answering, (silent.id,))
    kept = "what it has uploaded is fetched" if stored else "its results are lost"
    assert plan.notes == (f"machine {silent.id} doesn't answer: {kept}",)
