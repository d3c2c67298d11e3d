"""Records that earlier versions of kedge have left on users' disks are read as they were meant.

`records/<cloud>/` is a provider's state folder with machines in every state, some of them half-written or damaged;
`facts.json` beside it states what each says.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.adapters.cloud.reading import (
    CLOUDS,
    RECORDS,
    every,
    list_machines,
    list_runs,
    read_machine,
    read_run,
    stated,
    write_machine_back,
    write_run_back,
)


@pytest.mark.parametrize(("cloud", "machine_id"), every("machines"))
def test_a_machine_s_record_says_what_it_said_when_it_was_written(cloud: str, machine_id: str) -> None:
    """Which machine at the cloud, of which run and account, since when, with which host key, and how it is reached."""
    assert read_machine(cloud, RECORDS / cloud, machine_id) == stated(cloud, "machines")[machine_id]


@pytest.mark.parametrize("cloud", CLOUDS)
def test_a_machine_s_record_says_the_same_once_it_is_written_in_today_s_format(cloud: str, tmp_path: Path) -> None:
    """All clouds' have one form then, which says its number."""
    shutil.copytree(RECORDS / cloud / "machines", tmp_path / "machines")
    whole = {machine_id: facts for machine_id, facts in stated(cloud, "machines").items() if facts}
    for machine_id in whole:
        write_machine_back(cloud, tmp_path, machine_id)
        assert json.loads((tmp_path / "machines" / f"{machine_id}.json").read_text())["format"] == 2
    assert {machine_id: read_machine(cloud, tmp_path, machine_id) for machine_id in whole} == whole


@pytest.mark.parametrize(("cloud", "run_id"), every("runs", "damaged runs"))
def test_a_run_s_record_says_what_it_said_when_it_was_written(cloud: str, run_id: str) -> None:
    """What the run has at the cloud besides machines; a damaged file is the record of a run that has nothing."""
    facts = {**stated(cloud, "damaged runs"), **stated(cloud, "runs")}
    assert read_run(cloud, RECORDS / cloud, run_id) == facts[run_id]


@pytest.mark.parametrize("cloud", CLOUDS)
def test_damaged_records_hide_no_others(cloud: str) -> None:
    """A listing goes on behind a half-written file, and shows no more than there is."""
    machines = stated(cloud, "machines")
    assert set(machines) == {path.stem for path in (RECORDS / cloud / "machines").iterdir()}
    assert list_machines(cloud, RECORDS / cloud) == sorted(each for each, facts in machines.items() if facts)
    assert list_runs(cloud, RECORDS / cloud) == sorted(stated(cloud, "runs"))


@pytest.mark.parametrize(("cloud", "run_id"), every("runs"))
def test_a_run_s_record_is_written_byte_for_byte_as_before(cloud: str, run_id: str, tmp_path: Path) -> None:
    """An older kedge on the same disk reads it."""
    shutil.copytree(RECORDS / cloud / "runs", tmp_path / "runs")
    assert write_run_back(cloud, tmp_path, run_id) == (RECORDS / cloud / "runs" / f"{run_id}.json").read_bytes()
