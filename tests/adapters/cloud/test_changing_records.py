"""Commands that change one run's record at the same time."""

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
    """A run's record at some cloud."""

    id: str
    regions: tuple[str, ...] = ()


def test_changes_of_several_commands_at_once_are_all_kept(tmp_path: Path) -> None:
    """Each reads what the one before it has written."""

    def note(region: str) -> None:
        folder = RecordFolder(tmp_path, Run)
        folder.change_run(RUN, lambda run: replace(run, regions=(*run.regions, region)), SystemClock())

    regions = [f"region-{number}" for number in range(40)]
    with ThreadPoolExecutor(max_workers=8) as pool:
        list(pool.map(note, regions))
    folder = RecordFolder(tmp_path, Run)
    assert sorted(folder.run(RUN).regions) == sorted(regions)
    assert [run.id for run in folder.runs()] == [RUN]


def test_a_record_that_is_never_let_go_is_given_up(tmp_path: Path) -> None:
    """Nothing is written then."""
    folder, clock = RecordFolder(tmp_path, Run), FakeClock()
    with (
        hold_folder(tmp_path / "runs", clock, ConflictError("taken"), within=timedelta(0)),
        pytest.raises(ConflictError, match="is being changed"),
    ):
        folder.change_run(RUN, lambda run: replace(run, regions=("here",)), clock)
    assert folder.run(RUN) == Run(id=RUN)
