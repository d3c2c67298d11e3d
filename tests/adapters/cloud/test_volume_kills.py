"""A command may be killed at any request about data volumes: no volume is lost, duplicated, or left to bill unseen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta

import pytest

from orchestrator.adapters.cloud.boot.cloud_config import Origin
from orchestrator.adapters.cloud.volumes.model import VolumeTraits
from orchestrator.core.job import AtEnd
from tests.adapters.cloud.volume_life import OTHER, RUN, SCANS, launch, order, tear_down
from tests.support.fake_cloud.volumes import AFTER_START, AT_BIRTH, FakeVolumes, Killed

MODELS = replace(SCANS, name="models")
LATE = timedelta(seconds=5)


@dataclass(frozen=True)
class Case:
    """A kind of cloud, what the job asks for, and what exists before.

    Attributes:
        found: who created the volume that exists; None if there is none.
        loses_answers: whether the answers to creations are lost after their effect.
    """

    traits: VolumeTraits
    at_end: AtEnd
    found: Origin | None
    loses_answers: bool

    def cloud(self) -> FakeVolumes:
        """Make the account. A volume that exists was kept by another run."""
        cloud = FakeVolumes(traits=self.traits, appears_after=LATE, loses_answers=self.loses_answers)
        if self.found is not None:
            cloud.add("scans", origin=self.found, run_id=OTHER)
        return cloud

    def launch(self, cloud: FakeVolumes) -> None:
        """Launch with two volumes, one of which may exist."""
        launch(cloud, order(replace(SCANS, at_end=self.at_end), replace(MODELS, at_end=self.at_end)))

    def outlives(self, name: str) -> bool:
        """Tell whether a volume of the run's machine exists after the run's end."""
        return self.at_end is AtEnd.KEEP or (name == "scans" and self.found is Origin.FOUND)


CASES = [
    Case(traits, at_end, found, loses_answers)
    for traits in (AFTER_START, AT_BIRTH)
    for at_end in AtEnd
    for found in (None, Origin.MADE, Origin.FOUND)
    for loses_answers in (False, True)
]


def killed_at_each(make: Callable[[], FakeVolumes], command: Callable[[FakeVolumes], object]) -> Iterator[FakeVolumes]:
    """Run a command on new accounts, and kill it before and after each of its requests; yield each account."""
    undisturbed = make()
    before = len(undisturbed.calls)
    command(undisturbed)
    for number in range(before, len(undisturbed.calls)):
        for dies_after in (False, True):
            cloud = make()
            cloud.dies_at, cloud.dies_after = number, dies_after
            with pytest.raises(Killed):
                command(cloud)
            cloud.dies_at = None
            # By the time of the next command, the cloud is consistent.
            cloud.clock.sleep(LATE)
            yield cloud


def names(cloud: FakeVolumes) -> list[str]:
    return sorted(volume.name for volume in cloud.volumes.values())


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_killed_launch_is_continued(case: Case) -> None:
    """Wherever it was killed, the next one has both volumes once, and they belong to this run."""
    for cloud in killed_at_each(case.cloud, case.launch):
        case.launch(cloud)
        there = {volume.name: volume for volume in cloud.volumes.values()}
        assert names(cloud) == ["models", "scans"]
        assert {volume.holder for volume in there.values()} == {"i-1"}
        assert {(volume.run_id, volume.at_end) for volume in there.values()} == {(RUN, case.at_end)}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_teardown_of_a_killed_launch_settles_all_of_its_volumes(case: Case) -> None:
    """Volumes that the run created or used end as the job says. Others stay as they were."""
    for cloud in killed_at_each(case.cloud, case.launch):
        before = dict(cloud.volumes)
        lines = tear_down(cloud)
        for volume in before.values():
            is_settled = any(f"({volume.id})" in line for line in lines)
            assert is_settled or volume.run_id == OTHER
            assert (volume.id in cloud.volumes) is (case.outlives(volume.name) or not is_settled)
            if is_settled and case.found is not None and volume.name == "scans":
                assert RUN in cloud.used_by[volume.id]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_killed_teardown_is_continued(case: Case) -> None:
    """The next one has the same result: deleted or kept, and copied once if the run says so."""

    def launched() -> FakeVolumes:
        cloud = case.cloud()
        case.launch(cloud)
        return cloud

    for cloud in killed_at_each(launched, tear_down):
        ids = {volume.name: volume.id for volume in cloud.volumes.values()}
        tear_down(cloud)
        assert names(cloud) == [name for name in ("models", "scans") if case.outlives(name)]
        if case.at_end is AtEnd.SNAPSHOT:
            assert sorted(cloud.snapshots.values()) == sorted(set(cloud.snapshots.values()))
            assert {(ids[name], RUN) for name in ids} <= set(cloud.snapshots.values())


def test_the_enumeration_covers_every_request() -> None:
    """A request that no command sends would never be killed."""
    met: set[str] = set()
    for case in CASES:
        cloud = case.cloud()
        case.launch(cloud)
        tear_down(cloud)
        met |= set(cloud.calls)
    assert met == {
        *("list_named", "read", "create", "takes_volumes", "attach", "mark_used"),
        *("list_of_run", "find_snapshot", "begin_snapshot", "is_copied", "delete"),
    }
