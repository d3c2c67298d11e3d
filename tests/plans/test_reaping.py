"""What is to be reaped, as data: each case is a run as its provider and the ledger have it, and what must follow."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from orchestrator.core.policy.findings import Finding, RunSeen
from orchestrator.core.policy.reaping import plan_reaping
from tests.plans.cases import read_cases


def see(case: dict[str, Any]) -> RunSeen:
    """Return the case's run; where it doesn't say otherwise, the ledger knows the machines that are there."""
    run = case["run"]
    deadlines_at = [machine["deadline_at"] for machine in run["machines"]]
    return msgspec.convert({"recorded": run["machines"], "deadlines_at": deadlines_at, **run}, RunSeen, strict=False)


def line(finding: Finding) -> str:
    """Write a finding as the cases do."""
    return f"{finding.step} {finding.what}: {finding.why}{', bills' if finding.bills else ''}"


@pytest.mark.parametrize("case", read_cases("reaping"))
def test_reaping(case: dict[str, Any]) -> None:
    """The case's findings follow, machines that are ended are among them, and its run is closed or not."""
    reaping = plan_reaping(see(case), case["now"], everyone=case["everyone"])
    assert [line(finding) for finding in reaping.findings] == case["findings"]
    assert reaping.closes is case["closes"]
    assert reaping.seen == see(case)
    run = case["run"]
    assert {(finding.run_id, finding.provider) for finding in reaping.findings} <= {(run["run_id"], run["provider"])}
    assert {finding.own for finding in reaping.findings} <= {run["record"] is not None}
    ended = [f"machine {machine.id}" for machine in reaping.ends]
    assert ended == [finding.what for finding in reaping.findings if finding.step == "end"]
    assert reaping.acts == any(finding.step != "leave" for finding in reaping.findings)
    for name, value in case.get("first", {}).items():
        assert str(getattr(reaping.findings[0], name)) == value
