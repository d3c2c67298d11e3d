"""Shards on several nodes' disks: a checkpoint survives the loss of a machine."""

import shutil
from pathlib import Path

import pytest
import torch

from tests.trainer import harness, join_shards
from tests.trainer.shard_writers import Writers, names
from trainer.base.errors import CheckpointWriteError
from trainer.checkpoints.loading import load
from trainer.checkpoints.nodes import find_place, is_first, number_nodes, plan_keepers
from trainer.checkpoints.replicas import CHUNK_BYTES
from trainer.group.distributed import ALONE


def merge(folders: list[Path], target: Path) -> Path:
    """Return what the processes of these nodes could send each other, in one folder."""
    for folder in folders:
        shutil.copytree(folder, target, dirs_exist_ok=True)
    return target


def test_checkpoint_survives_the_loss_of_any_node(tmp_path: Path) -> None:
    """Three nodes with two processes each and a disk of its own: one is deleted, the other two have all of it."""
    disks = [tmp_path / name for name in "abc"]
    writers = Writers([disk for disk in disks for _ in range(2)], replicas=1, per_node=2)
    assert writers.save(7) == [None] * 6
    assert writers.save_best(7, 0.5) == [None] * 6
    for lost in disks:
        left = merge([disk for disk in disks if disk != lost], tmp_path / f"without {lost.name}")
        for name in ("step-00000007", "best-00000007"):
            assert load(left / name, ALONE)["model"].keys() == join_shards.make_state(7)["model"].keys()
        harness.assert_equal(load(left / "step-00000007", ALONE), join_shards.make_state(7), lost.name)
    writers.save(8)
    writers.save(9)
    for disk, held in zip(disks, ((0, 1, 4, 5), (0, 1, 2, 3), (2, 3, 4, 5)), strict=True):
        kept = [name.partition("-of-")[0] for name in names(disk) if name.endswith("safetensors")]
        steps = [f"step-0000000{step}/{rank}" for step in (8, 9) for rank in held]
        assert kept == [f"best-00000007/{rank}" for rank in held] + steps


def test_replica_is_the_same_file_also_if_it_is_larger_than_a_chunk(tmp_path: Path) -> None:
    """Two nodes exchange shards of more than two chunks: byte for byte."""
    disks = [tmp_path / "a", tmp_path / "b"]
    state = {"model": {"weight": torch.rand(5 * CHUNK_BYTES // 4 + 3)}, "fingerprint": {}}
    assert Writers(disks, replicas=3).save(1, state) == [None, None]
    ours, theirs = ({name: (disk / name).read_bytes() for name in names(disk)} for disk in disks)
    assert len(ours) == 3
    assert ours == theirs


def test_nodes_with_a_shared_disk_send_nothing(tmp_path: Path) -> None:
    """The keeper finds the shard on its disk: it is written once."""
    writers = Writers([tmp_path] * 2, replicas=1)
    assert writers.save(1) == [None, None]
    assert [name.partition("-of-")[0] for name in names(tmp_path)] == [f"step-00000001/{one}" for one in (0, 1)] + [
        "step-00000001/index.json"
    ]


def test_full_disk_of_a_keeper_fails_the_save(tmp_path: Path) -> None:
    """A folder is in the place of the replica's file: no index, and the error names the process."""
    disks = [tmp_path / "a", tmp_path / "b", tmp_path / "c"]
    writers = Writers(disks, replicas=1, timeout_seconds=5)
    shutil.rmtree(disks[1])
    failures = writers.save(1)
    assert all(isinstance(failure, CheckpointWriteError) for failure in failures)
    assert "process 1" in str(failures[0])
    assert writers.stores[0].newest_name() is None


def test_first_process_of_each_place_verifies(tmp_path: Path) -> None:
    """One file under two names is one place; a copy is another; two processes that see no file are in no place."""
    one, link, copy = tmp_path / "one", tmp_path / "link", tmp_path / "copy"
    one.write_text("rows")
    link.symlink_to(one)
    copy.write_text("rows")
    places = [find_place(path) for path in (one, copy, link, copy, tmp_path / "none")]
    assert [is_first(rank, places) for rank in range(5)] == [True, True, False, False, True]
    assert places[4] is None


@pytest.mark.parametrize(
    ("local_ranks", "nodes", "keepers"),
    [
        ([0, 1, 0, 1], [0, 0, 1, 1], [2, 3, 0, 1]),
        ([0, 0, 0], [0, 1, 2], [1, 2, 0]),
        ([0, 1, 2, 0], [0, 0, 0, 1], [3, 3, 3, 0]),
        ([0, 0, 1, 2], [0, 1, 1, 1], [1, 0, 0, 0]),
    ],
)
def test_keeper_is_on_the_next_node(local_ranks: list[int], nodes: list[int], keepers: list[int]) -> None:
    """At the same place there; nodes of different sizes take turns."""
    assert number_nodes(local_ranks) == nodes
    assert plan_keepers(nodes, 1) == keepers
