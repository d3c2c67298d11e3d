"""The life of a data volume at any cloud: found or created, attached to a machine, and ended as its run says."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from orchestrator.adapters.cloud.boot.cloud_config import Origin
from orchestrator.adapters.cloud.volumes.end import end_volumes, leftover_of
from orchestrator.adapters.cloud.volumes.find import existing_volumes, find_volumes, locate_volumes
from orchestrator.adapters.cloud.volumes.holders import await_free, give_volumes
from orchestrator.adapters.cloud.volumes.model import ListedVolume, VolumeTraits
from orchestrator.adapters.cloud.volumes.ready import delete_new_volumes, ensure_volumes
from orchestrator.core.errors import BadRequestError, ConflictError, KedgeError, StillBillingError
from orchestrator.core.job import AtEnd, Resources, VolumeSpec
from tests.adapters.cloud.volume_life import OTHER, RUN, SCANS, launch, order
from tests.support.fake_cloud.volumes import AFTER_START, AT_BIRTH, FakeVolumes

MINUTE = timedelta(minutes=1)


def wait_for_volume(run_id: str, minutes: float) -> timedelta:
    """Wait for a volume that an ending machine of a run detaches after some minutes; return how long it took."""
    cloud = FakeVolumes()
    cloud.add("scans", run_id=run_id)
    cloud.start("i-before", run_id, existing_volumes(cloud, [SCANS], "here"))
    cloud.end("i-before", minutes * MINUTE)
    (volume,) = existing_volumes(cloud, [SCANS], "here")
    begun = cloud.clock.now()
    await_free(cloud, volume, RUN, cloud.clock)
    return cloud.clock.now() - begun


def test_the_wait_for_a_volume_of_the_same_run_is_long() -> None:
    """Large machines take more than ten minutes to shut down. After that the error says that the run's own has it."""
    assert 12 * MINUTE <= wait_for_volume(RUN, minutes=12) < 13 * MINUTE
    with pytest.raises(ConflictError, match="shutting down for 15 minutes"):
        wait_for_volume(RUN, minutes=20)
    with pytest.raises(ConflictError, match=f"another machine, of run {OTHER}"):
        wait_for_volume(OTHER, minutes=12)


def test_a_volume_that_another_run_marked_meanwhile_is_marked_again() -> None:
    """While this run waits, the previous machine marks the volume. That run's end would then delete it."""
    cloud = FakeVolumes()
    volume = cloud.add("scans", run_id=RUN)
    cloud.start("i-before", OTHER, existing_volumes(cloud, [SCANS], "here"))
    cloud.later.append((cloud.clock.now(), lambda: cloud.mark_used(volume, OTHER, AtEnd.DELETE)))
    cloud.end("i-before", MINUTE)
    launch(cloud, order(SCANS))
    (there,) = cloud.volumes.values()
    assert (there.run_id, there.at_end) == (RUN, AtEnd.KEEP)
    assert list(end_volumes(cloud, OTHER, "here", cloud.clock)) == []


@pytest.mark.parametrize("traits", [AFTER_START, AT_BIRTH])
def test_a_volume_that_another_run_marked_during_the_boot_is_marked_again(traits: VolumeTraits) -> None:
    """It was free at the request, and is free again. The other run's end would then delete it."""
    cloud = FakeVolumes(traits=traits)
    volume = cloud.add("scans", run_id=RUN)
    mine = ensure_volumes(cloud, order(SCANS), cloud.clock)
    cloud.mark_used(volume, OTHER, AtEnd.DELETE)
    cloud.start("i-1", RUN, mine if traits.attaches_at_birth else ())
    give_volumes(cloud, "i-1", RUN, mine, cloud.clock)
    (there,) = cloud.volumes.values()
    assert (there.holder, there.run_id, there.at_end) == ("i-1", RUN, AtEnd.KEEP)


class Untagged(FakeVolumes):
    """A cloud that shows a new volume without marks at first."""

    def read(self, volume: ListedVolume) -> ListedVolume:
        return replace(super().read(volume), origin=Origin.FOUND)


def test_a_new_volume_is_blank_even_if_its_marks_appear_late() -> None:
    """A volume that kedge did not create is never formatted, so this one could not be used otherwise."""
    cloud = Untagged()
    (volume,) = ensure_volumes(cloud, order(SCANS), cloud.clock)
    assert volume.boot.origin is Origin.MADE
    cloud.add("found", origin=Origin.FOUND)
    (volume,) = ensure_volumes(cloud, order(replace(SCANS, name="found")), cloud.clock)
    assert volume.boot.origin is Origin.FOUND


@pytest.mark.parametrize("traits", [AFTER_START, AT_BIRTH])
def test_a_volume_with_the_right_marks_costs_no_request(traits: VolumeTraits) -> None:
    """When a machine is completed again, and when a run uses its volume again."""
    cloud = FakeVolumes(traits=traits)
    launch(cloud, order(SCANS))
    cloud.calls.clear()
    give_volumes(cloud, "i-1", RUN, existing_volumes(cloud, [SCANS], "here"), cloud.clock)
    assert not {"attach", "mark_used"} & set(cloud.calls)


def test_a_volume_of_another_place_is_refused_with_the_option_that_helps() -> None:
    """The error has the cloud's own word for the place."""
    cloud = FakeVolumes()
    cloud.add("scans", place="here-b")
    with pytest.raises(BadRequestError) as caught:
        ensure_volumes(cloud, order(SCANS), cloud.clock)
    assert caught.value.fix == "use --zone here-b"
    cloud = FakeVolumes()
    cloud.add("scans", place="here-b", place_id="here-a")
    assert ensure_volumes(cloud, order(SCANS), cloud.clock)


def test_an_order_without_a_place_creates_nothing() -> None:
    """Otherwise the volume and the machine could be in different places."""
    cloud = FakeVolumes()
    with pytest.raises(BadRequestError, match="need a zone"):
        ensure_volumes(cloud, order(SCANS, zone=""), cloud.clock)
    assert cloud.calls == []


def test_an_existing_volume_pins_the_place_and_is_priced_by_its_size() -> None:
    """If the cloud reports no speed, the job's value stays, so that the offers can refuse it."""
    cloud = FakeVolumes()
    spec = replace(SCANS, iops=6000, snapshot_id="snap-1")
    cloud.add("scans", size_gib=7)
    placed, place = locate_volumes(cloud, Resources(volumes=(spec,)))
    assert (placed.volumes, place) == ((replace(spec, size_gib=7),), "here-a")
    cloud = FakeVolumes()
    cloud.add("scans", size_gib=7, iops=3000, mibps=125)
    placed, _ = locate_volumes(cloud, Resources(volumes=(spec,)))
    assert placed.volumes == (replace(SCANS, size_gib=7, iops=3000, mibps=125),)


def test_volumes_that_cannot_be_attached_to_one_machine_are_refused() -> None:
    """They are in two places, or not in the requested one."""
    cloud = FakeVolumes(traits=AT_BIRTH)
    cloud.add("scans")
    with pytest.raises(BadRequestError, match="can't be attached to one machine"):
        locate_volumes(cloud, Resources(volumes=(SCANS,), regions=("elsewhere",)))
    cloud.add("other", place="here-b")
    with pytest.raises(BadRequestError, match="can't be attached to one machine") as caught:
        locate_volumes(cloud, Resources(volumes=(SCANS, replace(SCANS, name="other"))))
    assert caught.value.why.endswith("other in here-b, scans in here-a")


def test_two_volumes_of_one_name_are_an_error() -> None:
    """The error names both, and the tag to remove."""
    cloud = FakeVolumes()
    cloud.add("scans")
    cloud.add("scans")
    with pytest.raises(KedgeError, match="two data volumes called scans in here") as caught:
        find_volumes(cloud, ["scans"], "here")
    assert caught.value.why == "vol-1 and vol-2 both carry the tag name=scans"


def test_a_volume_whose_creation_is_unclear_is_looked_for_and_not_requested_again() -> None:
    """If it is found by its name, the launch continues. Otherwise the error says that it may have been created."""
    cloud = FakeVolumes(loses_answers=True)
    (made,) = ensure_volumes(cloud, order(SCANS), cloud.clock)
    assert made.is_new
    assert cloud.calls.count("create") == 1
    cloud = FakeVolumes(refuses=True)
    with pytest.raises(StillBillingError, match="scans may have been made"):
        ensure_volumes(cloud, order(SCANS), cloud.clock)
    assert cloud.calls.count("create") == 1


@pytest.mark.parametrize("traits", [AFTER_START, AT_BIRTH])
def test_a_new_volume_may_be_unknown_for_a_while(traits: VolumeTraits) -> None:
    """The attachment is repeated until it works."""
    cloud = FakeVolumes(traits=traits, appears_after=timedelta(seconds=10))
    launch(cloud, order(SCANS))
    (there,) = cloud.volumes.values()
    assert there.holder == "i-1"


def test_a_new_volume_is_deleted_if_another_one_cannot_be_created() -> None:
    """Even while the cloud does not know it yet. Volumes that existed before stay."""
    cloud = FakeVolumes(appears_after=timedelta(seconds=10))
    cloud.add("elsewhere", place="here-b")
    with pytest.raises(BadRequestError):
        ensure_volumes(cloud, order(SCANS, replace(SCANS, name="elsewhere")), cloud.clock)
    assert [volume.name for volume in cloud.volumes.values()] == ["elsewhere"]


def test_a_volume_created_with_its_machine_is_deleted_with_it() -> None:
    """Only after it is detached: the cloud refuses to delete an attached volume."""
    cloud = FakeVolumes(traits=AT_BIRTH)
    cloud.add("kept")
    volumes = ensure_volumes(cloud, order(SCANS, replace(SCANS, name="kept")), cloud.clock)
    cloud.start("i-1", RUN, volumes)
    cloud.end("i-1", MINUTE)
    delete_new_volumes(cloud, volumes, cloud.clock)
    assert [volume.name for volume in cloud.volumes.values()] == ["kept"]


def test_a_machine_is_not_completed_with_a_volume_of_another_machine() -> None:
    """Two machines that write to one disk would destroy its data."""
    cloud = FakeVolumes()
    cloud.add("scans", run_id=OTHER)
    cloud.start("i-other", OTHER, existing_volumes(cloud, [SCANS], "here"))
    cloud.start("i-1", RUN)
    with pytest.raises(ConflictError, match="in use"):
        launch(cloud, order(SCANS))
    assert [volume.holder for volume in cloud.volumes.values()] == ["i-other"]


@pytest.mark.parametrize(
    ("at_end", "origin", "is_kept"),
    [
        (AtEnd.KEEP, Origin.MADE, True),
        (AtEnd.DELETE, Origin.MADE, False),
        (AtEnd.DELETE, Origin.RESTORED, False),
        (AtEnd.SNAPSHOT, Origin.FOUND, True),
    ],
)
def test_a_sweep_says_what_the_end_of_a_run_would_do_with_a_volume(
    at_end: AtEnd, origin: Origin, *, is_kept: bool
) -> None:
    """A volume is reported as kept exactly if the end keeps it."""
    cloud = FakeVolumes()
    volume = cloud.add("scans", run_id=RUN, at_end=at_end, origin=origin)
    assert leftover_of(volume).kept is is_kept
    (end,) = end_volumes(cloud, RUN, "here", cloud.clock)
    assert end.says.startswith("kept" if is_kept else "deleted")
    assert bool(cloud.volumes) is is_kept


def test_an_end_leaves_a_volume_to_the_run_that_has_taken_it_meanwhile() -> None:
    """It was free for a moment, and then taken by another run."""
    cloud = FakeVolumes()
    volume = cloud.add("scans", run_id=RUN, at_end=AtEnd.DELETE, is_free=False, holder="i-0")
    cloud.instances["i-0"] = RUN
    cloud.end("i-0", MINUTE)
    cloud.later.append((cloud.clock.now() + MINUTE, lambda: cloud.mark_used(volume, OTHER, AtEnd.KEEP)))
    (end,) = end_volumes(cloud, RUN, "here", cloud.clock)
    assert "another run has used it since" in end.says
    assert len(cloud.volumes) == 1


def test_a_volume_whose_snapshot_takes_long_is_kept_until_the_next_teardown() -> None:
    """The snapshot continues by itself, and is found again."""
    cloud = FakeVolumes(copies_in=timedelta(minutes=12))
    cloud.add("scans", run_id=RUN, at_end=AtEnd.SNAPSHOT)
    (end,) = end_volumes(cloud, RUN, "here", cloud.clock)
    assert "isn't complete" in end.says
    (end,) = end_volumes(cloud, RUN, "here", cloud.clock)
    assert end.says == "deleted data volume scans (vol-1); its snapshot is snap-0"
    assert len(cloud.snapshots) == 1


def test_a_machine_without_volumes_causes_no_volume_requests() -> None:
    """Volumes cost requests only if there are any."""
    cloud = FakeVolumes()
    assert ensure_volumes(cloud, order(), cloud.clock) == ()
    assert existing_volumes(cloud, (), "here") == ()
    give_volumes(cloud, "i-1", RUN, (), cloud.clock)
    assert locate_volumes(cloud, Resources()) == (Resources(), None)
    assert cloud.calls == []


def test_volumes_are_numbered_in_the_order_of_the_job() -> None:
    """If disks have no serial number, the machine identifies them by this number."""
    cloud = FakeVolumes()
    cloud.add("second")
    second = VolumeSpec(name="second", target="data/second", size_gib=1)
    made = ensure_volumes(cloud, order(SCANS, second), cloud.clock)
    assert [(each.spec.name, each.boot.device, each.boot.serial) for each in made] == [
        ("scans", "/dev/0", "scans"),
        ("second", "/dev/1", "second"),
    ]


def test_a_lost_volume_is_not_reported_as_in_use_by_another_machine() -> None:
    """No machine has it, or ever will."""
    cloud = FakeVolumes()
    cloud.add("scans", is_free=False, is_lost=True)
    with pytest.raises(ConflictError, match="scans") as caught:
        launch(cloud, order(SCANS))
    assert "another machine" not in caught.value.why
