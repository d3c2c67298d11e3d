"""Sharded checkpoints: written by several processes together, and read by any number."""

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.trainer import harness, join_shards
from tests.trainer.ranks import OnRanks
from tests.trainer.shard_writers import FINGERPRINT, Writers, names, shard_of
from trainer.base.errors import BadRequestError
from trainer.base.signals import StopFlag
from trainer.checkpoints.loading import load, load_best
from trainer.checkpoints.remap import remap
from trainer.checkpoints.shards import INDEX
from trainer.checkpoints.store import CheckpointStore
from trainer.checkpoints.tree import flatten
from trainer.cli import main
from trainer.group.distributed import ALONE


@pytest.mark.parametrize("size", [2, 3, 5])
def test_shards_of_any_number_hold_the_whole_state(size: int, tmp_path: Path) -> None:
    """Uneven rows, fewer rows than processes, tensors without rows, tuples: all of it, to the bit."""
    writers = Writers([tmp_path] * size)
    assert writers.save(7) == [None] * size
    harness.assert_equal(load(tmp_path / "step-00000007", ALONE), join_shards.make_state(7), "step 7")


def test_shard_is_a_plain_safetensors_file_with_its_part_only(tmp_path: Path) -> None:
    """Hugging Face's reader finds only the second process's rows, under the model's names."""
    Writers([tmp_path] * 2).save(7)
    second = load_file(shard_of(tmp_path / "step-00000007", 1))
    whole = join_shards.make_state(7)["model"]
    assert torch.equal(second["weight"], whole["weight"][4:])
    assert "scale" not in second
    assert (tmp_path / "step-00000007" / INDEX).read_text().startswith('{"format": "kedge shards 1"')


def test_last_checkpoints_are_kept_and_unfinished_ones_removed(tmp_path: Path) -> None:
    """Folders are pruned like files; shards without an index are no checkpoint, and are removed once they are old.

    A milestone stays, also when another process prunes.
    """
    writers = Writers([tmp_path] * 2)
    writers.save(1)
    writers.save(2)
    (tmp_path / "step-00000002" / INDEX).unlink()
    (tmp_path / "step-00000009").mkdir()
    (tmp_path / "step-00000009" / "0-of-2.01234567.safetensors").write_text("somebody is still writing")
    assert writers.stores[0].newest_name() == "step-00000001"
    writers.save(3, is_milestone=True)
    writers.save(4)
    kept = sorted(path.name for path in tmp_path.iterdir())
    assert kept == ["step-00000003", "step-00000004", "step-00000009"]
    later = Writers([tmp_path] * 2, keep=1)
    later.save(10)
    later.save(11)
    kept = sorted(path.name for path in tmp_path.iterdir())
    assert kept == ["step-00000003", "step-00000011"]


def test_best_weights_are_chosen_by_the_main_process_for_all(tmp_path: Path) -> None:
    """Nobody writes worse weights, and nobody waits for a shard of them."""
    writers = Writers([tmp_path / "a", tmp_path / "b"])
    for step, value in ((1, 0.5), (2, 0.25), (3, 0.75)):
        assert writers.save_best(step, value) == [None, None]
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["best-00000003"]
    assert [path.name for path in (tmp_path / "b").iterdir()] == ["best-00000003"]
    shutil.copytree(tmp_path / "b", tmp_path / "a", dirs_exist_ok=True)
    best = load_best(writers.stores[0], ALONE, print)
    assert best is not None
    assert best["rating"]["value"] == 0.75


def test_step_that_is_saved_again_replaces_the_index_on_every_disk(tmp_path: Path) -> None:
    """Each machine has its own disk; the later content counts, and the earlier is removed."""
    writers = Writers([tmp_path / "a", tmp_path / "b"])
    writers.save(1)
    assert writers.save(1, join_shards.make_state(5)) == [None, None]
    for rank, disk in enumerate("ab"):
        assert [name[:7] for name in names(tmp_path / disk / "step-00000001")] == [f"{rank}-of-2.", INDEX[:7]]
    shutil.copytree(tmp_path / "b", tmp_path / "a", dirs_exist_ok=True)
    harness.assert_equal(load(tmp_path / "a" / "step-00000001", ALONE), join_shards.make_state(5), "saved again")


def test_best_weights_of_any_machine_count(tmp_path: Path) -> None:
    """The main process's disk is new: worse weights replace nothing, and the other disk's are loaded."""
    folders = [tmp_path / "a", tmp_path / "b"]
    Writers(folders).save_best(1, 0.9)
    shutil.copytree(folders[0], folders[1], dirs_exist_ok=True)
    shutil.rmtree(folders[0])
    writers = Writers(folders)
    assert writers.save_best(2, 0.5) == [None, None]
    assert [path.name for path in folders[0].iterdir()] == []
    assert [path.name for path in folders[1].iterdir()] == ["best-00000001"]
    assert writers.save_best(3, 0.95) == [None, None]
    assert [path.name for path in folders[1].iterdir()] == ["best-00000003"]


def test_same_step_in_another_form_is_replaced(tmp_path: Path) -> None:
    """A run that was not sharded resumes sharded, and vice versa: the last save of a step counts."""
    alone = CheckpointStore(tmp_path, keep=2, fingerprint=FINGERPRINT)
    alone.save(flatten({"step": 1}), step=1)
    Writers([tmp_path] * 2).save(1)
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]
    alone.save(flatten({"step": 1}), step=1)
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001.safetensors"]


def test_remap_merges_shards_and_refuses_a_single_one(tmp_path: Path) -> None:
    """The folder gives all weights; a single shard would give only some rows under the weights' names."""
    Writers([tmp_path] * 2).save(3)
    folder = tmp_path / "step-00000003"
    assert main(["remap", str(folder), str(tmp_path / "all.safetensors")], environ={}, stop=StopFlag()) == 0
    harness.assert_equal(load_file(tmp_path / "all.safetensors"), join_shards.make_state(3)["model"], "remapped")
    with pytest.raises(BadRequestError, match="does not load") as refused:
        remap(shard_of(folder, 1), tmp_path / "part.safetensors")
    assert "one of several shards" in refused.value.why
    shard_of(folder, 1).unlink()
    with pytest.raises(BadRequestError, match="does not load"):
        remap(folder, tmp_path / "rest.safetensors")


@pytest.mark.parametrize("processes", [2, 3])
def test_any_number_of_processes_reads_its_rows_from_whatever_disks_they_are_on(
    processes: int, tmp_path: Path, on_ranks: OnRanks
) -> None:
    """Written by 2, 3 and 4; on one disk, and spread over the readers' disks in another order; and whole files.

    On one disk only the first process verifies what others need too.
    """
    for size in (2, 3, 4):
        Writers([tmp_path / "shared" / str(size)] * size).save(size)
    alone = CheckpointStore(tmp_path / "shared", keep=2, fingerprint=FINGERPRINT)
    for step in (8, 9):
        alone.save(flatten(join_shards.make_state(step)), step=step)
    damaged = tmp_path / "shared" / "step-00000009.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"\1")
    disks = [tmp_path / f"disk {number}" for number in range(processes)]
    for disk in disks:
        shutil.copytree(tmp_path / "shared" / "4", disk / "step-4-shards")
        for shard in (disk / "step-4-shards" / "step-00000004").glob("*-of-4.*"):
            if (int(shard.name[0]) + 1) % processes != disks.index(disk):
                shard.unlink()
    on_ranks(processes, lambda group: join_shards.compare_all(tmp_path, group))
