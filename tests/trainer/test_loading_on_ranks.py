"""Checkpoints that not every process has on its disk: all load the same, and all learn of a damaged one."""

from pathlib import Path

import pytest
import torch

from tests.trainer import harness, join_shards
from tests.trainer.ranks import OnRanks
from tests.trainer.shard_writers import FINGERPRINT, Writers, shard_of
from trainer.base.errors import DamagedCheckpointError, IncompleteCheckpointError
from trainer.checkpoints.loading import load, load_best, load_newest
from trainer.checkpoints.shards import INDEX
from trainer.checkpoints.store import CheckpointStore, Rating
from trainer.checkpoints.tree import State, flatten
from trainer.group.distributed import ProcessGroup

NAME = "step-00000001.safetensors"


def open_stores(folder: Path, count: int) -> list[CheckpointStore]:
    """A disk for each process."""
    stores = [CheckpointStore(folder / str(rank), keep=9, fingerprint=FINGERPRINT) for rank in range(count)]
    for store in stores:
        store.prepare()
    return stores


def state_of(value: float) -> State:
    return {"fingerprint": FINGERPRINT, "model": {"weight": torch.full((3,), value)}}


def save_best(store: CheckpointStore, step: int, value: float) -> None:
    rating = Rating(metric="val_accuracy", value=value, best_is="max")
    store.save_best(flatten({**state_of(value), "rating": rating.dump()}), step=step, rating=rating)


@pytest.mark.parametrize("holders", [(1,), (1, 2), (0, 2)])
def test_file_on_some_disks_is_loaded_by_all(holders: tuple[int, ...], tmp_path: Path, on_ranks: OnRanks) -> None:
    """Two disks with other contents: the first one's counts on all."""
    stores = open_stores(tmp_path, 3)
    for rank in holders:
        stores[rank].save(flatten(state_of(rank)), step=1)
    for state in on_ranks(3, lambda group: load(stores[group.rank].folder / NAME, group)):
        harness.assert_equal(state, state_of(holders[0]), str(holders))


def test_file_that_one_process_finds_damaged_is_loaded_by_none(tmp_path: Path, on_ranks: OnRanks) -> None:
    """Each has its own copy, of one size and header, and one has a flipped bit in its data."""
    stores = open_stores(tmp_path, 2)
    for store in stores:
        store.save(flatten(state_of(1)), step=1)
    path = stores[1].folder / NAME
    path.write_bytes(path.read_bytes()[:-1] + b"\1")

    def act(group: ProcessGroup) -> str:
        with pytest.raises(DamagedCheckpointError) as refused:
            load(stores[group.rank].folder / NAME, group)
        return refused.value.why

    assert on_ranks(2, act) == ["its data fails its checksum"] * 2


def test_newest_of_all_disks_is_loaded_and_a_damaged_one_set_aside_where_it_is(
    tmp_path: Path, on_ranks: OnRanks
) -> None:
    """The first has step 1, the second steps 2 and 3, and 3 is half a file."""
    stores = open_stores(tmp_path, 2)
    stores[0].save(flatten(state_of(1)), step=1)
    stores[1].save(flatten(state_of(2)), step=2)
    (stores[1].folder / "step-00000003.safetensors").write_bytes(b"half")

    def act(group: ProcessGroup) -> tuple[State | None, list[str]]:
        said: list[str] = []
        return load_newest(stores[group.rank], group, said.append), said

    for state, said in on_ranks(2, act):
        harness.assert_equal(state, state_of(2), "newest")
        assert said == ["step-00000003.safetensors does not load (truncated, or not a safetensors file): set aside"]
    assert [path.name for path in stores[0].folder.iterdir()] == [NAME]
    assert (stores[1].folder / "step-00000003.safetensors.damaged").exists()


def test_best_of_all_disks_is_loaded(tmp_path: Path, on_ranks: OnRanks) -> None:
    """And unusable ones on any disk are reported on all, if there is no other."""
    stores = open_stores(tmp_path, 2)
    save_best(stores[0], 1, 0.5)
    save_best(stores[1], 2, 0.75)

    def act(group: ProcessGroup) -> tuple[State | None, list[str]]:
        said: list[str] = []
        return load_best(stores[group.rank], group, said.append), said

    for state, said in on_ranks(2, act):
        assert state is not None
        assert state["rating"]["value"] == 0.75
        assert not said
    for rank in (0, 1):
        (stores[rank].folder / f"best-0000000{rank + 1}.safetensors").write_bytes(b"half")
    for state, said in on_ranks(2, act):
        assert state is None
        assert [line.partition(" ")[0] for line in said] == [f"best-0000000{step}.safetensors" for step in (1, 2)]


def test_shards_of_two_disks_are_joined_and_a_lost_one_is_named(tmp_path: Path, on_ranks: OnRanks) -> None:
    """Each process reads its own disk. A third, empty one gets all; without the second's shard, all say so."""
    folders = [tmp_path / str(rank) for rank in range(3)]
    Writers(folders[:2]).save(1)
    places = [folder / "step-00000001" for folder in folders]
    for state in on_ranks(3, lambda group: load(places[group.rank], group)):
        harness.assert_equal(state, join_shards.make_state(1), "joined")
    lost = shard_of(places[1], 1)
    lost.unlink()

    def refused(group: ProcessGroup) -> str:
        with pytest.raises(IncompleteCheckpointError) as caught:
            load(places[group.rank], group)
        return caught.value.fix

    assert all(lost.name in fix for fix in on_ranks(3, refused))
    (places[0] / INDEX).write_text("{}")
    (places[1] / INDEX).write_text("{}")

    def damaged(group: ProcessGroup) -> str:
        with pytest.raises(DamagedCheckpointError) as caught:
            load(places[group.rank], group)
        return caught.value.why

    assert on_ranks(3, damaged) == ["its index is invalid"] * 3


def test_shard_that_is_damaged_on_one_disk_is_damaged_for_all(tmp_path: Path, on_ranks: OnRanks) -> None:
    """The process that reads it says so; the others don't wait for it."""
    folders = [tmp_path / str(rank) for rank in range(2)]
    Writers(folders).save(1)
    places = [folder / "step-00000001" for folder in folders]
    path = shard_of(places[1], 1)
    path.write_bytes(path.read_bytes()[:-1] + bytes([path.read_bytes()[-1] ^ 1]))

    def act(group: ProcessGroup) -> str:
        with pytest.raises(DamagedCheckpointError) as caught:
            load(places[group.rank], group)
        return caught.value.why

    assert on_ranks(2, act) == ["shard 1 of 2: its data fails its checksum"] * 2
