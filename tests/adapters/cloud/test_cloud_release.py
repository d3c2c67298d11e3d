"""When any cloud releases a run's resources, and what prevents it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from orchestrator.core.errors import BadRequestError, StillBillingError
from orchestrator.core.job import AtEnd
from tests.adapters.cloud.faults import KINDS_OF_VOLUMES
from tests.adapters.cloud.laptops import EVERY_CLOUD, Laptop, laptop
from tests.adapters.cloud.life import M1, RUN
from tests.support.fake_cloud.command import fake_context
from tests.support.fake_cloud.volumes import FakeVolumes


@EVERY_CLOUD
def test_a_run_is_released_once_it_has_no_machine(cloud: str, tmp_path: Path) -> None:
    """Machines of another computer count as well. Then guards, keys and local records are deleted."""
    mine = laptop(cloud, tmp_path)
    mine.create()
    for computer in (mine, mine.elsewhere()):
        with pytest.raises(StillBillingError, match="settled") as caught:
            computer.provider().release(RUN)
        assert M1 in caught.value.why
    mine.destroy()
    assert mine.provider().release(RUN) == [f"removed key of {RUN}"]
    assert (mine.files, mine.cloud.keys, mine.cloud.guards) == ({}, {}, {})
    assert mine.provider().release(RUN) == []


@EVERY_CLOUD
def test_a_run_whose_machine_may_still_appear_is_not_released(cloud: str, tmp_path: Path) -> None:
    """Its record is needed to find it, and has its host key."""
    mine = laptop(cloud, tmp_path)
    mine.cloud.faults += [("send", "lost")] * 20
    with pytest.raises(StillBillingError, match="may have been created"):
        mine.create()
    with pytest.raises(StillBillingError, match="settled"):
        mine.provider().release(RUN)
    mine.cloud.clock.sleep(timedelta(minutes=16))
    mine.provider().release(RUN)
    assert mine.files == {}


@EVERY_CLOUD
def test_a_run_is_not_released_with_credentials_of_another_account(cloud: str, tmp_path: Path) -> None:
    """In that account, its machine would seem to be gone and nothing would seem to be left."""
    mine = laptop(cloud, tmp_path)
    mine.create()
    mine.cloud.clock.sleep(timedelta(hours=1))
    mine.cloud.account, mine.cloud.instances, mine.cloud.guards = "5678", [], {}
    for ask in (mine.provider().describe, lambda _machine: mine.provider().release(RUN), mine.provider().destroy):
        with pytest.raises(BadRequestError, match="another account"):
            ask(M1)
    assert list(mine.files) == [M1]


def test_a_run_is_looked_for_in_the_places_that_are_recorded(regional: Laptop) -> None:
    """Its record, its machines' records or a sweep name the places; otherwise every place in use is searched."""
    ctx = fake_context(regional.cloud, regional.files, regional.folder)
    ctx.swept["other-1"] = {"there"}
    assert (ctx.places_of("other-1"), ctx.places_of(RUN)) == ({"there"}, {"here", "there"})
    regional.create()
    assert ctx.places_of(RUN) == {"here"}


def test_a_leftover_guard_is_deleted_with_its_run(regional: Laptop) -> None:
    """Deleting it together with the machine had failed."""
    regional.create()
    regional.cloud.faults.append(("disarm", "error"))
    regional.destroy()
    assert list(regional.cloud.guards) == [M1]
    assert regional.provider().release(RUN) == [f"removed alarm of {M1} in here", f"removed key of {RUN}"]
    assert regional.cloud.guards == {}


@EVERY_CLOUD
def test_a_volume_in_use_keeps_its_run_from_being_released(cloud: str, tmp_path: Path) -> None:
    """The next release continues with it."""
    volumes = FakeVolumes(traits=KINDS_OF_VOLUMES[cloud])
    scans = volumes.add("scans", run_id=RUN, at_end=AtEnd.DELETE, holder="i-9", is_free=False)
    mine = laptop(cloud, tmp_path, volumes)
    with pytest.raises(StillBillingError, match="settled"):
        mine.provider().release(RUN)
    volumes.volumes[scans.id] = replace(scans, holder="", is_free=True)
    assert mine.provider().release(RUN) == [f"deleted data volume scans ({scans.id})"]


@EVERY_CLOUD
def test_the_name_of_a_volume_does_not_affect_the_release(cloud: str, tmp_path: Path) -> None:
    """A name is not a message: this volume is kept, as its run says."""
    volumes = FakeVolumes(traits=KINDS_OF_VOLUMES[cloud])
    volumes.add("again", run_id=RUN, at_end=AtEnd.KEEP)
    mine = laptop(cloud, tmp_path, volumes)
    assert mine.provider().release(RUN) == ["kept data volume again (vol-1); it bills until it is deleted"]


def test_a_complete_record_saves_the_search_for_volumes(tmp_path: Path) -> None:
    """Unless a sweep of the same command has found volumes of the run."""
    volumes = FakeVolumes()
    mine = laptop("token", tmp_path, volumes)
    mine.has_full_records = True
    mine.provider().release(RUN)
    assert volumes.calls == []
    volumes.add("scans", run_id=RUN, at_end=AtEnd.DELETE)
    provider = mine.provider()
    provider.sweep()
    assert provider.release(RUN) == ["deleted data volume scans (vol-1)"]


@EVERY_CLOUD
def test_a_lost_volume_does_not_prevent_a_release(cloud: str, tmp_path: Path) -> None:
    """It never becomes available. It is deleted, or left if the job wants a snapshot, which is no longer possible."""
    volumes = FakeVolumes(traits=KINDS_OF_VOLUMES[cloud])
    volumes.add("scans", run_id=RUN, at_end=AtEnd.DELETE, is_free=False, is_lost=True)
    volumes.add("masks", run_id=RUN, at_end=AtEnd.SNAPSHOT, is_free=False, is_lost=True)
    mine = laptop(cloud, tmp_path, volumes)
    assert mine.provider().release(RUN) == [
        "deleted data volume scans (vol-1)",
        "kept data volume masks (vol-2): the cloud has lost it, so it can't be copied; it bills until it is deleted",
    ]


def test_a_volume_that_somebody_deletes_meanwhile_does_not_prevent_a_release(tmp_path: Path) -> None:
    """It disappears while the release waits for it."""
    volumes = FakeVolumes()
    volumes.add("scans", run_id=RUN, at_end=AtEnd.DELETE, is_free=False)
    now = volumes.clock.now()
    # The first request, the listing, schedules the deletion, so it happens at the second.
    volumes.later.append((now, lambda: volumes.later.append((now, volumes.volumes.clear))))
    mine = laptop("token", tmp_path, volumes)
    assert mine.provider().release(RUN) == ["data volume scans (vol-1) is gone"]
