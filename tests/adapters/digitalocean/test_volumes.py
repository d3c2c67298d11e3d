"""Data volumes: created once, formatted only if kedge created them, and ended as the job says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.adapters.providers.digitalocean.volume_api import volume_name
from orchestrator.core.errors import BadRequestError, ConflictError, KedgeError, NoCapacityError, StillBillingError
from orchestrator.core.job import AtEnd
from tests.adapters.digitalocean.world import M1, RUN, DoWorld, volume

VOLUMES = "/v2/volumes"


def names(do: DoWorld) -> list[str]:
    return sorted(each.name for each in do.api.cloud.account.volumes.values())


def user_data(do: DoWorld) -> str:
    (droplet,) = do.api.droplets()
    return droplet.user_data


def tear_down(do: DoWorld, machine_id: str = M1, run_id: str = RUN) -> list[str]:
    do.provider().destroy(machine_id)
    return [line for line in do.provider().release(run_id) if "data volume" in line]


def test_a_volume_is_created_in_the_offer_s_region_and_attached_at_creation(do: DoWorld) -> None:
    """It is blank: kedge could not tell that it owns a file system which DigitalOcean created."""
    do.provider().create(do.order(region="nyc2", volumes=(volume(),)))
    (made,) = do.api.cloud.account.volumes.values()
    (droplet,) = do.api.droplets()
    assert (made.region, made.size_gigabytes, made.filesystem_type) == ("nyc2", 1, "")
    assert made.droplet_id == droplet.id
    assert {"kedge-created", "kedge-volume:scans", f"kedge-run:{RUN}"} <= set(made.tags)


def test_the_machine_looks_for_a_volume_by_the_name_that_digitalocean_gives_it(do: DoWorld) -> None:
    """The disk reports the name: /dev/disk/by-id/scsi-0DO_Volume_NAME."""
    do.provider().create(do.order(volumes=(volume("Scans_2026"),)))
    assert names(do) == ["kedge-scans-2026"]
    assert "DO_Volume" in user_data(do)
    assert "kedge-scans-2026" in user_data(do)


@pytest.mark.parametrize("name", ["scans", "Scans_2026", "7days", "a.b", "x" * 100])
def test_any_name_becomes_one_that_the_api_accepts(name: str) -> None:
    """Up to 64 lower-case letters, digits and dashes, a letter first. Different names stay different."""
    made = volume_name(name)
    assert len(made) <= 64
    assert made[0].isalpha()
    assert set(made) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")


def test_the_next_run_uses_a_volume_again(do: DoWorld) -> None:
    """Its tags name the run that has it now, and that run decides its end."""
    do.provider().create(do.order(volumes=(volume(),)))
    tear_down(do)
    do.provider().create(do.order(id="next-1-m1", run_id="next-1", volumes=(volume(at_end=AtEnd.DELETE),)))
    (only,) = do.api.cloud.account.volumes.values()
    assert {tag for tag in only.tags if tag.startswith(("kedge-run", "kedge-at-end"))} == {
        "kedge-run:next-1",
        "kedge-at-end:delete",
    }
    assert tear_down(do, "next-1-m1", "next-1") == [f"deleted data volume scans ({only.id})"]
    assert names(do) == []


def test_a_volume_that_somebody_else_created_is_never_formatted_or_deleted(do: DoWorld) -> None:
    """It is used if it has the tag with the name, and kept whatever the job says."""
    theirs = {"name": "theirs", "size_gigabytes": 1, "region": "tor1", "tags": ["kedge-volume:scans"]}
    do.api.client().volumes.create(theirs)
    do.provider().create(do.order(volumes=(volume(at_end=AtEnd.DELETE),)))
    (line,) = tear_down(do)
    assert "which kedge didn't make" in line
    assert names(do) == ["theirs"]


def test_a_volume_is_kept_unless_the_job_says_otherwise(do: DoWorld) -> None:
    """The teardown then says that it bills."""
    do.provider().create(do.order(volumes=(volume(),)))
    (line,) = tear_down(do)
    assert "it bills until it is deleted" in line
    assert names(do) == ["scans"]


def test_a_snapshot_is_taken_before_a_volume_is_deleted(do: DoWorld) -> None:
    """Once, however often the teardown is repeated."""
    do.provider().create(do.order(volumes=(volume(at_end=AtEnd.SNAPSHOT),)))
    do.provider().destroy(M1)
    do.api.faults.fail_next("DELETE", "/v2/volumes/{volume_id}", status=500, times=None)
    with pytest.raises(KedgeError):
        do.provider().release(RUN)
    do.api.faults.clear()
    (line,) = [line for line in do.provider().release(RUN) if "data volume" in line]
    (copy,) = do.api.cloud.account.volume_snapshots.values()
    assert copy.id in line
    assert names(do) == []
    assert "kedge-volume:scans" in copy.tags


def test_a_volume_of_another_machine_is_not_taken(do: DoWorld) -> None:
    """Two machines that write to one disk would destroy its data."""
    do.provider().create(do.order(volumes=(volume(),)))
    with pytest.raises(ConflictError, match="in use"):
        do.provider().create(do.order(id="next-1-m1", run_id="next-1", volumes=(volume(),)))
    assert len(do.api.droplets()) == 1


def test_a_volume_in_another_region_is_refused(do: DoWorld) -> None:
    """The error names the region that has it."""
    do.provider().create(do.order(volumes=(volume(),)))
    tear_down(do)
    with pytest.raises(BadRequestError) as caught:
        do.provider().create(do.order(id="next-1-m1", run_id="next-1", region="nyc2", volumes=(volume(),)))
    assert "tor1" in caught.value.fix


def test_a_new_volume_is_deleted_if_the_droplet_cannot_be_created(do: DoWorld) -> None:
    """The next offer may be in another region. A volume that existed before stays."""
    do.api.sell_out("gpu-mi300x1-192gb")
    with pytest.raises(NoCapacityError):
        do.provider().create(do.order(volumes=(volume(),)))
    assert names(do) == []


def test_the_first_of_two_volumes_is_deleted_if_the_second_cannot_be_created(do: DoWorld) -> None:
    """A failed order leaves nothing that bills."""
    do.api.settings.volume_limit = 1
    with pytest.raises(KedgeError, match="second"):
        do.provider().create(do.order(volumes=(volume("first"), volume("second"))))
    assert names(do) == []


def test_a_volume_whose_answer_was_lost_is_found_by_its_tag(do: DoWorld) -> None:
    """It is created once, as a droplet is."""
    do.api.faults.drop_next("POST", VOLUMES)
    do.provider().create(do.order(volumes=(volume(),)))
    assert names(do) == ["scans"]
    assert len(do.api.calls.find("POST", VOLUMES)) == 1


def test_a_volume_whose_creation_stays_unclear_is_reported(do: DoWorld) -> None:
    """Without an answer and without a listed volume, the error says that it may bill."""
    do.api.faults.drop_next("POST", VOLUMES, after_effect=False)
    with pytest.raises(StillBillingError, match="scans"):
        do.provider().create(do.order(volumes=(volume(),)))
    assert do.api.droplets() == []


def test_two_volumes_of_one_name_are_refused(do: DoWorld) -> None:
    """Nobody can tell which one is meant."""
    for name in ("one", "two"):
        body = {"name": name, "size_gigabytes": 1, "region": "tor1", "tags": ["kedge-volume:scans"]}
        do.api.client().volumes.create(body)
    with pytest.raises(KedgeError, match="two data volumes called scans"):
        do.provider().create(do.order(volumes=(volume(),)))


def test_a_self_deleting_machine_deletes_a_volume_only_if_the_job_says_so(do: DoWorld) -> None:
    """The machine's end script deletes volumes that kedge created and that the job does not keep."""
    kept, gone = volume("kept"), replace(volume("gone"), at_end=AtEnd.DELETE)
    do.provider().create(do.order(volumes=(kept, gone)))
    ids = {each.name: each.id for each in do.api.cloud.account.volumes.values()}
    assert ids["gone"] in user_data(do)
    assert ids["kept"] not in user_data(do)
