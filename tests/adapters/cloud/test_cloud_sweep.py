"""What a sweep of any cloud finds, and how it reports regions that it cannot list."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from orchestrator.core.errors import KedgeError, StillBillingError
from orchestrator.core.job import AtEnd
from orchestrator.core.sweep import UnseenPart
from tests.adapters.cloud.faults import KINDS_OF_VOLUMES
from tests.adapters.cloud.laptops import EVERY_CLOUD, Laptop, laptop
from tests.adapters.cloud.life import M1, RUN
from tests.support.fake_cloud.volumes import FakeVolumes


@EVERY_CLOUD
def test_a_sweep_by_another_computer_finds_all_resources_of_a_run(cloud: str, tmp_path: Path) -> None:
    """The machine, its guard, its volume and the rest, each with the run that it belongs to."""
    volumes = FakeVolumes(traits=KINDS_OF_VOLUMES[cloud])
    volumes.add("scans", run_id=RUN, at_end=AtEnd.KEEP, usd_per_hour=Decimal(1))
    mine = laptop(cloud, tmp_path, volumes)
    mine.create()
    found = mine.elsewhere().provider().sweep()
    assert [machine.id for machine in found.machines] == [M1]
    guards = ["alarm"] if cloud == "token" else []
    assert sorted(left.kind for left in found.leftovers) == sorted(["data volume", "key", *guards])
    assert {left.run_id for left in found.leftovers} == {RUN}
    assert [(left.kept, left.usd_per_hour) for left in found.leftovers if left.kind == "data volume"] == [
        (True, Decimal(1))
    ]
    assert found.unseen == ()


@EVERY_CLOUD
def test_a_machine_without_marks_is_found_by_the_computer_that_created_it(cloud: str, tmp_path: Path) -> None:
    """Anybody in the account can remove the marks; the machine keeps running and billing."""
    mine = laptop(cloud, tmp_path)
    mine.create()
    mine.cloud.instances[0].marked = False
    mine.cloud.clock.sleep(timedelta(hours=1))
    assert [machine.id for machine in mine.provider().sweep().machines] == [M1]
    assert [machine.id for machine in mine.provider().machines()] == [M1]
    with pytest.raises(StillBillingError, match="settled"):
        mine.provider().release(RUN)


@EVERY_CLOUD
def test_an_instance_without_a_machine_id_is_a_leftover_of_no_run(cloud: str, tmp_path: Path) -> None:
    """Somebody changed its mark to an invalid id. It bills the price of its type."""
    mine = laptop(cloud, tmp_path)
    mine.create()
    mine.cloud.instances[0].named = False
    found = mine.elsewhere().provider().sweep()
    assert found.machines == ()
    (left,) = (left for left in found.leftovers if left.kind == mine.cloud.traits.noun)
    assert (left.name, left.run_id, left.usd_per_hour) == (mine.cloud.instances[0].id, "", Decimal(3))


@EVERY_CLOUD
def test_a_gone_instance_without_a_machine_id_is_no_leftover(cloud: str, tmp_path: Path) -> None:
    """It no longer bills, though its cloud may list it for another hour."""
    mine = laptop(cloud, tmp_path)
    mine.create()
    mine.cloud.keeps_gone = True
    mine.cloud.instances[0].named = False
    mine.cloud.end(mine.cloud.instances[0])
    mine.cloud.clock.sleep(timedelta(minutes=1))
    assert mine.cloud.traits.noun not in {left.kind for left in mine.elsewhere().provider().sweep().leftovers}


@EVERY_CLOUD
def test_an_instance_without_a_machine_id_has_the_price_of_its_mark(cloud: str, tmp_path: Path) -> None:
    """The cloud has no price for its type, or one without disks."""
    mine = laptop(cloud, tmp_path)
    mine.create()
    mine.cloud.instances[0].edited = {"machine_id": "", "usd_per_hour": Decimal(4), "list_usd_per_hour": Decimal(0)}
    found = mine.elsewhere().provider().sweep().leftovers
    assert [left.usd_per_hour for left in found if left.kind == mine.cloud.traits.noun] == [Decimal(4)]


def test_a_region_that_cannot_be_listed_hides_no_other_region(regional: Laptop) -> None:
    """It is reported as not seen, and may bill."""
    regional.create()
    regional.cloud.faults.append(("list", "error"))
    found = regional.elsewhere().provider().sweep()
    assert found.machines == ()
    assert found.unseen == (UnseenPart(what="list doesn't work: the cloud doesn't answer"),)
    assert {left.kind for left in found.leftovers} == {"key", "alarm"}


def test_a_part_that_cannot_bill_is_reported_as_such(regional: Laptop) -> None:
    """A role that cannot be listed costs nothing."""
    regional.create()
    regional.cloud.faults.append(("keys", "error"))
    found = regional.provider().sweep()
    assert [machine.id for machine in found.machines] == [M1]
    assert [part.may_bill for part in found.unseen] == [False]


def test_a_sweep_fails_if_the_one_listing_of_the_account_fails(tmp_path: Path) -> None:
    """Without regions there is nothing else to list."""
    mine = laptop("mark", tmp_path)
    mine.cloud.faults.append(("keys", "error"))
    with pytest.raises(KedgeError, match="keys doesn't work"):
        mine.provider().sweep()


def test_a_closed_region_that_was_never_used_is_reported_once(regional: Laptop) -> None:
    """It cannot bill, and does not hide the other regions."""
    regional.cloud.closed = ("there",)
    regional.create()
    found = regional.provider().sweep()
    assert [machine.id for machine in found.machines] == [M1]
    what = "there is closed to this account, and this computer has no record of anything there"
    assert found.unseen == (UnseenPart(what=what, may_bill=False),)


def test_a_closed_region_that_has_been_used_may_bill(regional: Laptop) -> None:
    """Machines that were created before it was closed still exist."""
    regional.create()
    record_there(regional, "i-0001")
    machines, guards = regional.provider().sweep().unseen
    assert machines.may_bill
    assert not guards.may_bill


def test_a_failing_region_hides_no_recorded_machine_of_another_region(regional: Laptop) -> None:
    """Both machines have lost their marks, and are looked up by recorded id, each in its region."""
    regional.create()
    record_there(regional, "i-0009")
    regional.cloud.instances[0].marked = False
    regional.cloud.clock.sleep(timedelta(hours=1))
    found = regional.provider().sweep()
    assert [machine.id for machine in found.machines] == [M1]
    assert found.unseen[0].what.startswith("the region can't be listed")


def test_a_closed_region_cannot_bill_for_a_computer_without_records(regional: Laptop) -> None:
    """Without records and a configured region it searches everywhere, and expects nothing anywhere."""
    regional.cloud.configured = ()
    regional.cloud.closed = ("there",)
    assert [part.may_bill for part in regional.provider().sweep().unseen] == [False]


def record_there(regional: Laptop, provider_id: str) -> None:
    """Add the record of a machine in a region, and close that region to the account."""
    ((machine_id, content),) = regional.files.items()
    changes = {'"here"': '"there"', M1: f"{M1}0", "i-0001": provider_id}
    for old, new in changes.items():
        content = content.replace(old.encode(), new.encode())
    regional.files[f"{machine_id}0"] = content
    regional.cloud.closed = ("there",)
