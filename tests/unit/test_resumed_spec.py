"""What changes in a run's specification when it is resumed."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from orchestrator.app.launch.launching import Changes, resumed_spec
from orchestrator.core.job import Job, LaunchSpec
from orchestrator.core.ledger import RunRecord, RunStage

NOW = datetime(2026, 11, 21, 18, tzinfo=UTC)
UNTIL = NOW + timedelta(minutes=20)
PLAIN = LaunchSpec(run_id="digits-1", provider="aws", job=Job(name="digits", time_limit=timedelta(hours=1)))
RECOVERED = replace(PLAIN, recover=True, until=UNTIL)


def resumed(spec: LaunchSpec, changes: Changes) -> LaunchSpec:
    """Take a run up again now."""
    return resumed_spec(
        RunRecord(spec=spec, stage=RunStage.LIVE, outcome="", created_at=NOW, ended_at=None), changes, NOW
    )


@pytest.mark.parametrize("spec", [PLAIN, RECOVERED], ids=["a plain run", "one that recovers"])
def test_a_run_stays_as_it_is_where_no_flag_says_otherwise(spec: LaunchSpec) -> None:
    """Whether it recovers, its deadline, and who may reach it."""
    spec = replace(spec, ssh_from="198.51.100.0/24")
    assert resumed(spec, Changes()) == spec


def test_a_run_that_no_longer_recovers_has_only_its_machines_deadlines() -> None:
    """Its next machine lives as long as any."""
    assert resumed(RECOVERED, Changes(recover=False)) == PLAIN


def test_a_run_that_starts_to_recover_ends_with_its_jobs_deadline() -> None:
    """However many machines it gets."""
    assert resumed(PLAIN, Changes(recover=True)).until == NOW + timedelta(hours=1)


def test_a_new_deadline_counts_from_now() -> None:
    """For all the machines of a run that recovers."""
    assert resumed(RECOVERED, Changes(time_limit=timedelta(hours=3))).until == NOW + timedelta(hours=3)


def test_another_range_of_addresses_is_remembered() -> None:
    """The last flag wins."""
    spec = replace(PLAIN, ssh_from="198.51.100.0/24")
    assert resumed(spec, Changes(ssh_from="203.0.113.7/32")).ssh_from == "203.0.113.7/32"
