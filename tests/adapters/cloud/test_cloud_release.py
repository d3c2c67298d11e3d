"""When a run's resources are released at any cloud, and what prevents it."""

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
from tests.support.fake_volumes import FakeVolumes


@EVERY_CLOUD
def test_a_run_is_released_once_it_has_no_machine(cloud: str, tmp_path: Path) -> None:
    """Another computer's included; then its guards and keys are gone, and this computer forgets it."""
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
def test_a_run_whose_machine_may_yet_come_is_not_released(cloud: str, tmp_path: Path) -> None:
    """Its record is what finds it, with the host key that it will show."""
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
def test_another_account_knows_nothing_of_a_run(cloud: str, tmp_path: Path) -> None:
    """Looked for there, its machine seems to be gone, and nothing seems to be left."""
    mine = laptop(cloud, tmp_path)
    mine.create()
    mine.cloud.clock.sleep(timedelta(hours=1))
    mine.cloud.account, mine.cloud.instances, mine.cloud.guards = "5678", [], {}
    for ask in (mine.provider().describe, lambda _machine: mine.provider().release(RUN), mine.provider().destroy):
        with pytest.raises(BadRequestError, match="another account"):
            ask(M1)
    assert list(mine.files) == [M1]


def test_a_run_is_looked_for_where_it_is_known_to_be(regional: Laptop) -> None:
    """Where its record, its machines' records or a sweep of this command say; else wherever anything is."""
    ctx = fake_context(regional.cloud, regional.files, regional.folder)
    ctx.swept["other-1"] = {"there"}
    assert (ctx.places_of("other-1"), ctx.places_of(RUN)) == ({"there"}, {"here", "there"})
    regional.create()
    assert ctx.places_of(RUN) == {"here"}


def test_a_guard_that_was_left_is_taken_away_with_its_run(regional: Laptop) -> None:
    """Its removal with the machine has failed."""
    regional.create()
    regional.cloud.faults.append(("disarm", "error"))
    regional.destroy()
    assert list(regional.cloud.guards) == [M1]
    assert regional.provider().release(RUN) == [f"removed alarm of {M1} in here", f"removed key of {RUN}"]
    assert regional.cloud.guards == {}


@EVERY_CLOUD
def test_a_volume_that_somebody_has_keeps_its_run(cloud: str, tmp_path: Path) -> None:
    """The next release goes on with it."""
    volumes = FakeVolumes(traits=KINDS_OF_VOLUMES[cloud])
    scans = volumes.add("scans", run_id=RUN, at_end=AtEnd.DELETE, holder="i-9", is_free=False)
    mine = laptop(cloud, tmp_path, volumes)
    with pytest.raises(StillBillingError, match="settled"):
        mine.provider().release(RUN)
    volumes.volumes[scans.id] = replace(scans, holder="", is_free=True)
    assert mine.provider().release(RUN) == [f"deleted data volume scans ({scans.id})"]


@EVERY_CLOUD
def test_a_run_is_released_whatever_its_volumes_are_called(cloud: str, tmp_path: Path) -> None:
    """A name is no message: this volume is kept, as its run says."""
    volumes = FakeVolumes(traits=KINDS_OF_VOLUMES[cloud])
    volumes.add("again", run_id=RUN, at_end=AtEnd.KEEP)
    mine = laptop(cloud, tmp_path, volumes)
    assert mine.provider().release(RUN) == ["kept data volume again (vol-1); it bills until it is deleted"]


def test_a_full_record_spares_the_look_for_volumes(tmp_path: Path) -> None:
    """Unless a sweep of the same command has found some of the run."""
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
def test_a_volume_that_its_cloud_has_lost_keeps_no_run(cloud: str, tmp_path: Path) -> None:
    """It never becomes free: it is deleted, or left if the job wants a snapshot, which nobody can make any more."""
    volumes = FakeVolumes(traits=KINDS_OF_VOLUMES[cloud])
    volumes.add("scans", run_id=RUN, at_end=AtEnd.DELETE, is_free=False, is_lost=True)
    volumes.add("masks", run_id=RUN, at_end=AtEnd.SNAPSHOT, is_free=False, is_lost=True)
    mine = laptop(cloud, tmp_path, volumes)
    assert mine.provider().release(RUN) == [
        "deleted data volume scans (vol-1)",
        "kept data volume masks (vol-2): the cloud has lost it, so it can't be copied; it bills until it is deleted",
    ]


def test_a_volume_that_goes_meanwhile_keeps_no_run(tmp_path: Path) -> None:
    """Somebody deletes it while the release waits for it."""
    volumes = FakeVolumes()
    volumes.add("scans", run_id=RUN, at_end=AtEnd.DELETE, is_free=False)
    now = volumes.clock.now()
    # Due at the first request, the listing, and so at the second.
    volumes.later.append((now, lambda: volumes.later.append((now, volumes.volumes.clear))))
    mine = laptop("token", tmp_path, volumes)
    assert mine.provider().release(RUN) == ["data volume scans (vol-1) is gone"]
