"""Records that earlier versions of kedge have left on users' disks are still read correctly.

`records/<cloud>/` is a provider's state folder with machines in every state, some of them half-written or damaged;
`facts.json` beside it has the expected facts of each.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.adapters.cloud.reading import (
    CLOUDS,
    RECORDS,
    all_records,
    expected_facts,
    list_machines,
    list_runs,
    read_machine,
    read_run,
    write_machine_back,
    write_run_back,
)


@pytest.mark.parametrize(("cloud", "machine_id"), all_records("machines"))
def test_a_machine_s_record_has_the_facts_that_were_written(cloud: str, machine_id: str) -> None:
    """Its id at the cloud, its run and account, its times, its host key, and how to reach it."""
    assert read_machine(cloud, RECORDS / cloud, machine_id) == expected_facts(cloud, "machines")[machine_id]


@pytest.mark.parametrize("cloud", CLOUDS)
def test_a_machine_s_record_keeps_its_facts_in_the_current_format(cloud: str, tmp_path: Path) -> None:
    """All clouds then have the same format, which has a number."""
    shutil.copytree(RECORDS / cloud / "machines", tmp_path / "machines")
    whole = {machine_id: facts for machine_id, facts in expected_facts(cloud, "machines").items() if facts}
    for machine_id in whole:
        write_machine_back(cloud, tmp_path, machine_id)
        assert json.loads((tmp_path / "machines" / f"{machine_id}.json").read_text())["format"] == 2
    assert {machine_id: read_machine(cloud, tmp_path, machine_id) for machine_id in whole} == whole


@pytest.mark.parametrize(("cloud", "run_id"), all_records("runs", "damaged runs"))
def test_a_run_s_record_has_the_facts_that_were_written(cloud: str, run_id: str) -> None:
    """The run's resources besides machines. A damaged file is read as an empty record."""
    facts = {**expected_facts(cloud, "damaged runs"), **expected_facts(cloud, "runs")}
    assert read_run(cloud, RECORDS / cloud, run_id) == facts[run_id]


@pytest.mark.parametrize("cloud", CLOUDS)
def test_damaged_records_hide_no_others(cloud: str) -> None:
    """A listing skips a half-written file, and shows all the others."""
    machines = expected_facts(cloud, "machines")
    assert set(machines) == {path.stem for path in (RECORDS / cloud / "machines").iterdir()}
    assert list_machines(cloud, RECORDS / cloud) == sorted(each for each, facts in machines.items() if facts)
    assert list_runs(cloud, RECORDS / cloud) == sorted(expected_facts(cloud, "runs"))


@pytest.mark.parametrize(("cloud", "run_id"), all_records("runs"))
def test_a_run_s_record_is_written_byte_for_byte_as_before(cloud: str, run_id: str, tmp_path: Path) -> None:
    """An older kedge that uses the same disk can read it."""
    shutil.copytree(RECORDS / cloud / "runs", tmp_path / "runs")
    assert write_run_back(cloud, tmp_path, run_id) == (RECORDS / cloud / "runs" / f"{run_id}.json").read_bytes()
