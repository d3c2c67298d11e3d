"""Which data volume `kedge volumes --delete` takes, and which it doesn't."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from orchestrator.adapters.host.clock import SystemClock
from orchestrator.adapters.ledger.sqlite import SqliteLedger
from orchestrator.app.reaping import Unseen
from orchestrator.app.volumes import DataVolume, VolumeList, require_over
from orchestrator.core.errors import BadRequestError, ConflictError
from orchestrator.core.job import Job, LaunchSpec

NOW = datetime(2026, 11, 28, tzinfo=UTC)
VOLUME = DataVolume(
    id="vol-1",
    name="scans",
    provider="aws",
    region="us-east-1",
    run_id="digits-1",
    created_at=NOW,
    usd_per_hour=Decimal("0.01"),
    kept=True,
)
SILENT = Unseen(provider="aws", why="us-west-2 doesn't answer", matters=True, partly=True)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[SqliteLedger]:
    ledger = SqliteLedger(tmp_path, SystemClock())
    yield ledger
    ledger.close()


def test_volume_of_a_run_that_is_not_over_is_not_deleted(ledger: SqliteLedger) -> None:
    """Also while no machine has it: a spot machine was reclaimed, or the run waits for `resume`."""
    ledger.open_run(LaunchSpec(run_id="digits-1", provider="aws", job=Job(name="digits")), NOW)
    with pytest.raises(ConflictError, match="in use") as caught:
        require_over(ledger, VOLUME)
    assert "kedge teardown digits-1" in caught.value.fix
    ledger.end_run("digits-1", NOW)
    require_over(ledger, VOLUME)
    require_over(ledger, replace(VOLUME, run_id="of-another-computer"))


def test_name_is_not_enough_where_another_volume_may_have_it() -> None:
    """Some of what matters didn't answer: only an id says which one is meant."""
    gap = VolumeList(volumes=(VOLUME,), unseen=(SILENT,))
    with pytest.raises(BadRequestError, match="there may be several data volumes called scans") as caught:
        gap.choose("scans")
    assert caught.value.why == "vol-1 at aws in us-east-1; not everything could be queried: aws"
    assert gap.choose("vol-1") == VOLUME
    unused = replace(SILENT, provider="lambda", matters=False)
    assert VolumeList(volumes=(VOLUME,), unseen=(unused,)).choose("scans") == VOLUME


def test_what_would_be_deleted_is_named_with_its_id_its_region_and_its_last_run() -> None:
    """A name alone could be another volume's."""
    assert VOLUME.described == "scans (vol-1 at aws in us-east-1), last used by run digits-1"
    bare = replace(VOLUME, region="", run_id="")
    assert bare.described == "scans (vol-1 at aws), last used by no known run"
