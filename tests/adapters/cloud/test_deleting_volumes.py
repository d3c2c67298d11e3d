"""A data volume that the user deletes, whatever its job has said."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from orchestrator.adapters.cloud.boot.cloud_config import Origin
from orchestrator.adapters.cloud.volumes.end import delete_volume
from orchestrator.core.errors import BadRequestError, ConflictError
from orchestrator.core.job import AtEnd
from tests.adapters.cloud.faults import KINDS_OF_VOLUMES
from tests.adapters.cloud.laptops import EVERY_CLOUD, laptop
from tests.adapters.cloud.volume_life import RUN, SCANS, launch, order
from tests.support.fake_cloud.volumes import FakeVolumes


@pytest.mark.parametrize("fields", [{}, {"origin": Origin.RESTORED}, {"is_lost": True, "is_free": False}])
def test_a_volume_that_kedge_made_is_deleted_although_its_job_keeps_it(fields: dict[str, Any]) -> None:
    """Blank, from a snapshot, or lost by the cloud. The second time it is gone, and that is no error."""
    cloud = FakeVolumes()
    volume = cloud.add("scans", run_id=RUN, at_end=AtEnd.KEEP, **fields)
    for _ in range(2):
        delete_volume(cloud, volume.id, "here", cloud.clock)
        assert cloud.volumes == {}


def test_a_volume_that_kedge_did_not_make_is_not_deleted() -> None:
    cloud = FakeVolumes()
    volume = cloud.add("scans", run_id=RUN, origin=Origin.FOUND)
    with pytest.raises(BadRequestError, match=r"data volume scans \(vol-1\) is not deleted"):
        delete_volume(cloud, volume.id, "here", cloud.clock)
    assert cloud.volumes


def test_a_volume_of_a_machine_that_works_is_refused_at_once() -> None:
    cloud = FakeVolumes()
    launch(cloud, order(SCANS))
    before = cloud.clock.now()
    with pytest.raises(ConflictError, match="in use") as caught:
        delete_volume(cloud, "vol-1", "here", cloud.clock)
    assert "i-1" in caught.value.why
    assert RUN in caught.value.why
    assert cloud.clock.now() == before


@pytest.mark.parametrize(("minutes", "deleted"), [(1, True), (10, False)])
def test_a_volume_of_a_machine_that_is_shutting_down_is_awaited(minutes: int, deleted: bool) -> None:
    cloud = FakeVolumes()
    launch(cloud, order(SCANS))
    cloud.end("i-1", timedelta(minutes=minutes))
    if deleted:
        delete_volume(cloud, "vol-1", "here", cloud.clock)
    else:
        with pytest.raises(ConflictError, match="in use"):
            delete_volume(cloud, "vol-1", "here", cloud.clock)
    assert (cloud.volumes == {}) is deleted


@EVERY_CLOUD
def test_what_a_sweep_shows_is_what_is_deleted(cloud: str, tmp_path: Path) -> None:
    """By the id and the region of the sweep. A cloud without data volumes says so."""
    volumes = FakeVolumes(traits=KINDS_OF_VOLUMES[cloud])
    volumes.add("scans", run_id=RUN)
    provider = laptop(cloud, tmp_path, volumes).provider()
    (left,) = (left for left in provider.sweep().leftovers if left.id)
    assert left.name == f"scans ({left.id})"
    provider.delete_volume(left.id, left.region)
    assert volumes.volumes == {}
    with pytest.raises(BadRequestError, match="has no data volumes"):
        laptop(cloud, tmp_path / "without").provider().delete_volume(left.id, left.region)
