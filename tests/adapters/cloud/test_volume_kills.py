"""A command may be killed at any request about data volumes: none is lost, doubled, or left to bill unseen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta

import pytest

from orchestrator.adapters.cloud.boot.cloud_config import Origin
from orchestrator.adapters.cloud.volumes.model import VolumeTraits
from orchestrator.core.job import AtEnd
from tests.adapters.cloud.volume_life import OTHER, RUN, SCANS, launch, order, tear_down
from tests.support.fake_volumes import AFTER_START, AT_BIRTH, FakeVolumes, Killed

MODELS = replace(SCANS, name="models")
LATE = timedelta(seconds=5)


@dataclass(frozen=True)
class Case:
    """One cloud, one wish, and what is there before.

    Attributes:
        found: who has made the volume that is there; None for none.
        loses_answers: of creations; each had its effect.
    """

    traits: VolumeTraits
    at_end: AtEnd
    found: Origin | None
    loses_answers: bool

    def cloud(self) -> FakeVolumes:
        """Make the account: a volume that is there was kept by another run."""
        cloud = FakeVolumes(traits=self.traits, appears_after=LATE, loses_answers=self.loses_answers)
        if self.found is not None:
            cloud.add("scans", origin=self.found, run_id=OTHER)
        return cloud

    def launch(self, cloud: FakeVolumes) -> None:
        """Launch with two volumes, of which one may be there."""
        launch(cloud, order(replace(SCANS, at_end=self.at_end), replace(MODELS, at_end=self.at_end)))

    def outlives(self, name: str) -> bool:
        """Tell whether a volume that the run's machine has had is there after the run's end."""
        return self.at_end is AtEnd.KEEP or (name == "scans" and self.found is Origin.FOUND)


CASES = [
    Case(traits, at_end, found, loses_answers)
    for traits in (AFTER_START, AT_BIRTH)
    for at_end in AtEnd
    for found in (None, Origin.MADE, Origin.FOUND)
    for loses_answers in (False, True)
]


def killed_at_each(make: Callable[[], FakeVolumes], command: Callable[[FakeVolumes], object]) -> Iterator[FakeVolumes]:
    """Run a command on new accounts, and kill it before and after each of its requests; the next one lives."""
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
            # By the time of the next command, all parts of the cloud have heard of what was made.
            cloud.clock.sleep(LATE)
            yield cloud


def names(cloud: FakeVolumes) -> list[str]:
    return sorted(volume.name for volume in cloud.volumes.values())


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_launch_that_was_killed_is_gone_on_with(case: Case) -> None:
    """Wherever it was killed: the next one has both volumes, each once, and this run settles their ends."""
    for cloud in killed_at_each(case.cloud, case.launch):
        case.launch(cloud)
        there = {volume.name: volume for volume in cloud.volumes.values()}
        assert names(cloud) == ["models", "scans"]
        assert {volume.holder for volume in there.values()} == {"i-1"}
        assert {(volume.run_id, volume.at_end) for volume in there.values()} == {(RUN, case.at_end)}


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_launch_that_was_killed_leaves_nothing_that_its_end_does_not_settle(case: Case) -> None:
    """What the run has made or had goes as it says; what was there, and no machine of it has had, stays as it was."""
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
def test_an_end_that_was_killed_is_gone_on_with(case: Case) -> None:
    """The next one ends in the same: deleted or kept, and copied once where the run says so."""

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


def test_the_enumeration_meets_every_request() -> None:
    """A request that no command sends would be killed at nowhere."""
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
