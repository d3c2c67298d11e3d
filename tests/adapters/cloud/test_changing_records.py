"""Several commands change one run's record at the same time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import pytest

from orchestrator.adapters.cloud.records import RecordFolder
from orchestrator.adapters.host.claims import hold_folder
from orchestrator.adapters.host.clock import SystemClock
from orchestrator.core.errors import ConflictError
from tests.support.clocks import FakeClock
from tests.support.fakes import RUN


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run's record."""

    id: str
    regions: tuple[str, ...] = ()


def test_concurrent_changes_of_several_commands_are_all_kept(tmp_path: Path) -> None:
    """Each command reads what the previous one has written."""

    def note(region: str) -> None:
        folder = RecordFolder(tmp_path, Run)
        folder.change_run(RUN, lambda run: replace(run, regions=(*run.regions, region)), SystemClock())

    regions = [f"region-{number}" for number in range(40)]
    with ThreadPoolExecutor(max_workers=8) as pool:
        list(pool.map(note, regions))
    folder = RecordFolder(tmp_path, Run)
    assert sorted(folder.run(RUN).regions) == sorted(regions)
    assert [run.id for run in folder.runs()] == [RUN]


def test_waiting_for_a_locked_record_has_a_deadline(tmp_path: Path) -> None:
    """Afterwards nothing is written."""
    folder, clock = RecordFolder(tmp_path, Run), FakeClock()
    with (
        hold_folder(tmp_path / "runs", clock, ConflictError("taken"), within=timedelta(0)),
        pytest.raises(ConflictError, match="is being changed"),
    ):
        folder.change_run(RUN, lambda run: replace(run, regions=("here",)), clock)
    assert folder.run(RUN) == Run(id=RUN)
