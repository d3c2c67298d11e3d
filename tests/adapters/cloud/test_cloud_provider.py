"""What the shared cloud provider does beyond the contract: its queries, and how it interprets the answers."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from orchestrator.adapters.ssh.keys import ensure_key
from orchestrator.adapters.store.settings import S3Settings
from orchestrator.core.errors import BadRequestError, KedgeError
from orchestrator.core.job import Resources
from orchestrator.core.machine import EndedBy, MachineState
from tests.adapters.cloud.laptops import EVERY_CLOUD, Laptop, laptop
from tests.adapters.cloud.life import M1, RUN, World, killed_everywhere
from tests.support.fake_cloud.account import MARK_CLOUD, TOKEN_CLOUD, FakeCloud


@EVERY_CLOUD
def test_a_machine_whose_end_is_confirmed_is_not_waited_for_again(cloud: str, tmp_path: Path) -> None:
    """A second teardown returns at once, however young the machine was."""
    mine = laptop(cloud, tmp_path)
    mine.create()
    mine.provider().destroy(M1)
    mine.cloud.clock.sleep(timedelta(seconds=10))
    begun = mine.cloud.clock.now()
    mine.provider().destroy(M1)
    assert mine.cloud.clock.now() == begun


@EVERY_CLOUD
def test_a_pinned_key_replaces_the_provisional_one(cloud: str, tmp_path: Path) -> None:
    """Only the computer that has the record knows about it."""
    mine = laptop(cloud, tmp_path)
    made = mine.create()
    assert made.address is not None
    assert made.address.provisional
    mine.provider().pin(M1, "ssh-ed25519 BBBB")
    seen = mine.provider().describe(M1)
    assert seen is not None
    assert seen.address == replace(made.address, host_key="ssh-ed25519 BBBB", provisional=False)
    with pytest.raises(KedgeError, match="no record"):
        mine.elsewhere().provider().pin(M1, "ssh-ed25519 BBBB")


@EVERY_CLOUD
def test_port_22_is_opened_only_by_the_computer_that_has_the_host_key(cloud: str, tmp_path: Path) -> None:
    """It opens the port only in the run's own account."""
    mine = laptop(cloud, tmp_path)
    mine.create()
    assert not mine.elsewhere().provider().reopen(M1, "198.51.100.7/32")
    assert mine.cloud.open_to == {RUN: "192.0.2.0/24"}
    assert mine.provider().reopen(M1, "198.51.100.7/32")
    assert not mine.provider().reopen(M1, "198.51.100.7/32")
    assert mine.cloud.open_to == {RUN: "198.51.100.7/32"}
    mine.cloud.account = "5678"
    with pytest.raises(BadRequestError, match="another account"):
        mine.provider().reopen(M1, "203.0.113.1/32")


def test_a_machine_whose_creation_fails_is_shown_as_ending(tmp_path: Path) -> None:
    """Its creator was killed before it could delete the machine, which never boots and bills until it is deleted."""
    mine = World(FakeCloud(MARK_CLOUD), tmp_path)

    def broken() -> World:
        return World(FakeCloud(MARK_CLOUD, faults=[("send", "errored")]), tmp_path)

    ends = set()
    for mine in killed_everywhere(broken):
        record = mine.context().records.machine(M1)
        if record is not None and record.provider_id and mine.cloud.living():
            provider = Laptop(mine.cloud, tmp_path, mine.records).provider()
            (machine,) = provider.machines()
            end = provider.why_ended(M1)
            ends.add((machine.state, end and end.by))
    assert ends == {(MachineState.ENDING, EndedBy.START)}


def test_of_two_instances_of_one_machine_the_younger_is_deleted(tmp_path: Path) -> None:
    """Two computers created it at once. The next look-up by either of them deletes the younger instance."""
    mine = laptop("mark", tmp_path)
    mine.create()
    mine.cloud.make(mine.cloud.sent[0])
    (machine,) = mine.provider().machines()
    assert machine.provider_id == "i-0001"
    mine.provider().guard(M1)
    assert [each.id for each in mine.cloud.living()] == ["i-0001"]


def test_marks_in_another_case_are_the_machine_s_own(tmp_path: Path) -> None:
    """A cloud may keep the case in which a tag was first written."""
    mine = Laptop(FakeCloud(replace(MARK_CLOUD, folds_case=True), shouts=True), tmp_path)
    made = mine.create()
    assert made.id == M1
    assert [machine.id for machine in mine.provider().machines()] == [M1]
    seen = mine.elsewhere().provider().describe(M1)
    assert seen is not None
    assert seen.id == M1
    mine.destroy()
    mine.provider().release(RUN)


def test_a_machine_without_a_recorded_id_is_found_by_its_mark_in_any_case(tmp_path: Path) -> None:
    """The command that created it was killed before it read the answer."""
    seen = set()

    def loud() -> World:
        return World(FakeCloud(replace(MARK_CLOUD, folds_case=True), shouts=True), tmp_path)

    for world in killed_everywhere(loud):
        record = world.context().records.machine(M1)
        if world.cloud.living() and record is not None and not record.provider_id:
            seen.add(len(Laptop(world.cloud, tmp_path, world.records).provider().machines()))
    assert seen == {1}


@EVERY_CLOUD
def test_a_machine_receives_its_agent_and_the_bucket_s_keys_over_ssh(cloud: str, tmp_path: Path) -> None:
    """The files have a seal that differs between runs."""
    mine = laptop(cloud, tmp_path)
    key_file, _ = ensure_key(tmp_path / "key")
    mine.key_file = key_file
    mine.create()
    assert not mine.provider().can_start_at_boot
    assert _names(mine) == {"agent.tar.gz", "complete"}
    mine.bucket = S3Settings(bucket="results", keys_file="/opt/private/store.json")
    assert mine.provider().can_start_at_boot
    assert _names(mine) == {"agent.tar.gz", "user/store.json", "complete"}
    assert _names(mine, {"A": "1"}) == {"agent.tar.gz", "user/store.json", "user/run-secrets.json", "complete"}
    supplies = [mine.provider().supplies(each, {}) for each in (M1, "other-1-m1")]
    assert supplies[0] != supplies[1]


def test_a_machine_that_downloads_its_agent_receives_nothing_over_ssh(regional: Laptop) -> None:
    """It has an IAM role."""
    fetches = replace(TOKEN_CLOUD, boot=replace(TOKEN_CLOUD.boot, carries_bootstrap=True))
    regional.cloud.traits = fetches
    regional.create()
    assert regional.provider().supplies(M1, {}) is None
    assert regional.provider().can_start_at_boot


def test_offers_come_with_their_basis_and_caveats(regional: Laptop) -> None:
    """The caveats of the account are added to those of every machine of the cloud."""
    provider = regional.provider()
    assert (provider.offers_basis, provider.caveats) == ("live", ("nothing here is real",))
    for _ in range(2):
        assert [offer.instance_type for offer in provider.offers(Resources())] == ["large"]
        assert provider.offers_basis == "an old list"
        assert provider.caveats == ("nothing here is real", "the account shares its role")
    assert provider.refresh_offers() == "nowhere"


def _names(mine: Laptop, secrets: Mapping[str, str] | None = None) -> set[str]:
    supplies = mine.provider().supplies(M1, secrets or {})
    assert supplies is not None
    with tarfile.open(fileobj=io.BytesIO(supplies.content)) as bundle:
        return set(bundle.getnames())
