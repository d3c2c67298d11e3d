"""The life of a data volume, whoever the cloud is: found or made, given to a machine, and ended as its run says."""

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
from tests.support.fake_volumes import AFTER_START, AT_BIRTH, FakeVolumes

MINUTE = timedelta(minutes=1)


def wait_for_volume(run_id: str, minutes: float) -> timedelta:
    """Wait for a volume that an ending machine of some run gives back after minutes; return how long that took."""
    cloud = FakeVolumes()
    cloud.add("scans", run_id=run_id)
    cloud.start("i-before", run_id, existing_volumes(cloud, [SCANS], "here"))
    cloud.end("i-before", minutes * MINUTE)
    (volume,) = existing_volumes(cloud, [SCANS], "here")
    begun = cloud.clock.now()
    await_free(cloud, volume, RUN, cloud.clock)
    return cloud.clock.now() - begun


def test_a_machine_of_the_same_run_that_ends_slowly_is_waited_for() -> None:
    """Large machines take ten minutes and more to shut down; then the error says that it is the run's own."""
    assert 12 * MINUTE <= wait_for_volume(RUN, minutes=12) < 13 * MINUTE
    with pytest.raises(ConflictError, match="shutting down for 15 minutes"):
        wait_for_volume(RUN, minutes=20)
    with pytest.raises(ConflictError, match=f"another machine, of run {OTHER}"):
        wait_for_volume(OTHER, minutes=12)


def test_a_volume_that_another_run_took_meanwhile_says_again_whose_it_is() -> None:
    """While this run waits, the machine before marks it as its own; left so, that run's end would delete it."""
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
def test_a_volume_that_another_run_had_while_the_machine_booted_says_again_whose_it_is(traits: VolumeTraits) -> None:
    """It was free when the machine was asked for, and is free again; left so, that run's end would delete it."""
    cloud = FakeVolumes(traits=traits)
    volume = cloud.add("scans", run_id=RUN)
    mine = ensure_volumes(cloud, order(SCANS), cloud.clock)
    cloud.mark_used(volume, OTHER, AtEnd.DELETE)
    cloud.start("i-1", RUN, mine if traits.attaches_at_birth else ())
    give_volumes(cloud, "i-1", RUN, mine, cloud.clock)
    (there,) = cloud.volumes.values()
    assert (there.holder, there.run_id, there.at_end) == ("i-1", RUN, AtEnd.KEEP)


class Untagged(FakeVolumes):
    """A cloud that shows a new volume without its marks at first."""

    def read(self, volume: ListedVolume) -> ListedVolume:
        return replace(super().read(volume), origin=Origin.FOUND)


def test_a_new_volume_is_blank_whatever_its_marks_say_at_first() -> None:
    """One that kedge didn't make is never formatted: this one could not be used."""
    cloud = Untagged()
    (volume,) = ensure_volumes(cloud, order(SCANS), cloud.clock)
    assert volume.boot.origin is Origin.MADE
    cloud.add("found", origin=Origin.FOUND)
    (volume,) = ensure_volumes(cloud, order(replace(SCANS, name="found")), cloud.clock)
    assert volume.boot.origin is Origin.FOUND


@pytest.mark.parametrize("traits", [AFTER_START, AT_BIRTH])
def test_a_volume_that_says_whose_it_is_costs_no_request(traits: VolumeTraits) -> None:
    """A machine that is completed again, and a run that has its volume again."""
    cloud = FakeVolumes(traits=traits)
    launch(cloud, order(SCANS))
    cloud.calls.clear()
    give_volumes(cloud, "i-1", RUN, existing_volumes(cloud, [SCANS], "here"), cloud.clock)
    assert not {"attach", "mark_used"} & set(cloud.calls)


def test_a_volume_of_another_place_is_refused_with_the_option_that_helps() -> None:
    """The cloud's own word for the place."""
    cloud = FakeVolumes()
    cloud.add("scans", place="here-b")
    with pytest.raises(BadRequestError) as caught:
        ensure_volumes(cloud, order(SCANS), cloud.clock)
    assert caught.value.fix == "use --zone here-b"
    cloud = FakeVolumes()
    cloud.add("scans", place="here-b", place_id="here-a")
    assert ensure_volumes(cloud, order(SCANS), cloud.clock)


def test_an_order_without_a_place_makes_nothing() -> None:
    """A volume would be somewhere, and the machine elsewhere."""
    cloud = FakeVolumes()
    with pytest.raises(BadRequestError, match="need a zone"):
        ensure_volumes(cloud, order(SCANS, zone=""), cloud.clock)
    assert cloud.calls == []


def test_what_exists_fixes_the_place_and_bills_by_its_size() -> None:
    """A cloud that tells no speed keeps what the job says of it, for its offers to refuse."""
    cloud = FakeVolumes()
    wish = replace(SCANS, iops=6000, snapshot_id="snap-1")
    cloud.add("scans", size_gib=7)
    placed, place = locate_volumes(cloud, Resources(volumes=(wish,)))
    assert (placed.volumes, place) == ((replace(wish, size_gib=7),), "here-a")
    cloud = FakeVolumes()
    cloud.add("scans", size_gib=7, iops=3000, mibps=125)
    placed, _ = locate_volumes(cloud, Resources(volumes=(wish,)))
    assert placed.volumes == (replace(SCANS, size_gib=7, iops=3000, mibps=125),)


def test_volumes_that_no_machine_can_have_together_are_refused() -> None:
    """In two places, or not where they are wished for."""
    cloud = FakeVolumes(traits=AT_BIRTH)
    cloud.add("scans")
    with pytest.raises(BadRequestError, match="can't be attached to one machine"):
        locate_volumes(cloud, Resources(volumes=(SCANS,), regions=("elsewhere",)))
    cloud.add("other", place="here-b")
    with pytest.raises(BadRequestError, match="can't be attached to one machine") as caught:
        locate_volumes(cloud, Resources(volumes=(SCANS, replace(SCANS, name="other"))))
    assert caught.value.why.endswith("other in here-b, scans in here-a")


def test_two_volumes_of_one_name_are_told_apart_by_nobody() -> None:
    """The error names both, and the tag to take away."""
    cloud = FakeVolumes()
    cloud.add("scans")
    cloud.add("scans")
    with pytest.raises(KedgeError, match="two data volumes called scans in here") as caught:
        find_volumes(cloud, ["scans"], "here")
    assert caught.value.why == "vol-1 and vol-2 both carry the tag name=scans"


def test_a_creation_that_nobody_answers_is_looked_for_and_never_repeated() -> None:
    """Found by its name it goes on; else it may bill, and what was made before it is deleted."""
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
    """It is asked for again until it can be attached."""
    cloud = FakeVolumes(traits=traits, appears_after=timedelta(seconds=10))
    launch(cloud, order(SCANS))
    (there,) = cloud.volumes.values()
    assert there.holder == "i-1"


def test_a_new_volume_goes_with_the_one_that_can_not_be_had() -> None:
    """Even while the cloud doesn't know it yet; what was there before stays."""
    cloud = FakeVolumes(appears_after=timedelta(seconds=10))
    cloud.add("elsewhere", place="here-b")
    with pytest.raises(BadRequestError):
        ensure_volumes(cloud, order(SCANS, replace(SCANS, name="elsewhere")), cloud.clock)
    assert [volume.name for volume in cloud.volumes.values()] == ["elsewhere"]


def test_a_new_volume_goes_with_the_machine_that_was_born_with_it() -> None:
    """Once that has let it go: the cloud refuses to delete what is attached."""
    cloud = FakeVolumes(traits=AT_BIRTH)
    cloud.add("kept")
    volumes = ensure_volumes(cloud, order(SCANS, replace(SCANS, name="kept")), cloud.clock)
    cloud.start("i-1", RUN, volumes)
    cloud.end("i-1", MINUTE)
    delete_new_volumes(cloud, volumes, cloud.clock)
    assert [volume.name for volume in cloud.volumes.values()] == ["kept"]


def test_a_machine_is_not_completed_with_a_volume_that_another_one_has() -> None:
    """A disk that two machines write to would be lost."""
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
def test_a_sweep_says_of_a_volume_what_its_end_would_do(at_end: AtEnd, origin: Origin, *, is_kept: bool) -> None:
    """What the end keeps, the sweep calls kept; and the end does as it says."""
    cloud = FakeVolumes()
    volume = cloud.add("scans", run_id=RUN, at_end=at_end, origin=origin)
    assert leftover_of(volume).kept is is_kept
    (end,) = end_volumes(cloud, RUN, "here", cloud.clock)
    assert end.says.startswith("kept" if is_kept else "deleted")
    assert bool(cloud.volumes) is is_kept


def test_an_end_leaves_a_volume_to_the_run_that_has_taken_it_meanwhile() -> None:
    """It was free for a moment, and then another run's."""
    cloud = FakeVolumes()
    volume = cloud.add("scans", run_id=RUN, at_end=AtEnd.DELETE, is_free=False, holder="i-0")
    cloud.instances["i-0"] = RUN
    cloud.end("i-0", MINUTE)
    cloud.later.append((cloud.clock.now() + MINUTE, lambda: cloud.mark_used(volume, OTHER, AtEnd.KEEP)))
    (end,) = end_volumes(cloud, RUN, "here", cloud.clock)
    assert "another run has used it since" in end.says
    assert len(cloud.volumes) == 1


def test_a_volume_whose_snapshot_takes_long_is_kept_until_the_next_teardown() -> None:
    """The snapshot goes on by itself, and is found again."""
    cloud = FakeVolumes(copies_in=timedelta(minutes=12))
    cloud.add("scans", run_id=RUN, at_end=AtEnd.SNAPSHOT)
    (end,) = end_volumes(cloud, RUN, "here", cloud.clock)
    assert "isn't complete" in end.says
    (end,) = end_volumes(cloud, RUN, "here", cloud.clock)
    assert end.says == "deleted data volume scans (vol-1); its snapshot is snap-0"
    assert len(cloud.snapshots) == 1


def test_nothing_is_asked_for_a_machine_without_volumes() -> None:
    """They cost requests only where there are any."""
    cloud = FakeVolumes()
    assert ensure_volumes(cloud, order(), cloud.clock) == ()
    assert existing_volumes(cloud, (), "here") == ()
    give_volumes(cloud, "i-1", RUN, (), cloud.clock)
    assert locate_volumes(cloud, Resources()) == (Resources(), None)
    assert cloud.calls == []


def test_volumes_are_numbered_in_the_order_of_the_job() -> None:
    """Where disks tell no serial, the number is what the machine goes by."""
    cloud = FakeVolumes()
    cloud.add("second")
    second = VolumeSpec(name="second", target="data/second", size_gib=1)
    made = ensure_volumes(cloud, order(SCANS, second), cloud.clock)
    assert [(each.spec.name, each.boot.device, each.boot.serial) for each in made] == [
        ("scans", "/dev/0", "scans"),
        ("second", "/dev/1", "second"),
    ]


def test_a_lost_volume_is_not_said_to_be_another_machine_s() -> None:
    """No machine has it, and none ever will."""
    cloud = FakeVolumes()
    cloud.add("scans", is_free=False, is_lost=True)
    with pytest.raises(ConflictError, match="scans") as caught:
        launch(cloud, order(SCANS))
    assert "another machine" not in caught.value.why
