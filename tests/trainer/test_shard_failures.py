"""A process, a disk or a machine fails while shards are written: the checkpoint is whole or absent."""

import shutil
import time
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tests.trainer import harness, join_shards
from tests.trainer.ranks import OnRanks
from tests.trainer.shard_writers import Writers, cut, names
from trainer.base.errors import CheckpointWriteError, IncompleteCheckpointError
from trainer.checkpoints.loading import load, load_newest
from trainer.checkpoints.saver import Saver, TrainingSnapshot
from trainer.checkpoints.shards import INDEX
from trainer.checkpoints.store import CheckpointStore, Rating
from trainer.checkpoints.tree import State, flatten
from trainer.group.distributed import ALONE, ProcessGroup


def test_temporary_files_of_a_killed_process_are_removed(tmp_path: Path) -> None:
    """At the next start."""
    writers = Writers([tmp_path] * 2)
    writers.save(1)
    (tmp_path / "step-00000001" / ".1-of-2.01234567.safetensors.tmp").write_text("half")
    (tmp_path / "step-00000001" / f".{INDEX}.123.tmp").write_text("half")
    writers.stores[1].prepare()
    assert [name[:6] for name in names(tmp_path / "step-00000001")] == ["0-of-2", "1-of-2", INDEX[:6]]


def test_process_that_dies_leaves_no_index_and_the_others_say_so(tmp_path: Path) -> None:
    """Two of three write: the checkpoint before it stays the newest."""
    writers = Writers([tmp_path] * 3, timeout_seconds=5)
    writers.save(1)
    whole = join_shards.make_state(2)

    def save(rank: int, store: CheckpointStore) -> None:
        if rank != 1:
            store.save(flatten(cut(whole, rank, 3)), step=2)

    first, dead, third = writers.each(save)
    assert dead is None
    for failure in (first, third):
        assert isinstance(failure, CheckpointWriteError)
        assert "process 1 is gone" in failure.why
    assert writers.stores[0].newest_name() == "step-00000001"
    newest = load_newest(writers.stores[0], ALONE, print)
    harness.assert_equal(newest, join_shards.make_state(1), "step 1")


def test_full_disk_of_one_process_fails_all_and_is_named(tmp_path: Path) -> None:
    """No process waits for its shard."""
    folders = [tmp_path / name for name in ("a", "b")]
    writers = Writers(folders)
    shutil.rmtree(folders[1])
    failures = writers.save(1)
    assert all(isinstance(failure, CheckpointWriteError) for failure in failures)
    assert "process 1: " in str(failures[0])
    assert writers.stores[0].newest_name() is None


def test_exiting_process_waits_for_the_others_only_briefly(tmp_path: Path) -> None:
    """Its own shard is written; the other one's never comes."""
    store = Writers([tmp_path] * 2).stores[0]
    store.shorten_waits()
    with pytest.raises(CheckpointWriteError, match="step-00000001 could not be written"):
        store.save(flatten(cut(join_shards.make_state(1), 0, 2)), step=1)
    (only,) = names(tmp_path)
    assert only.startswith("step-00000001/0-of-2.")


def test_failed_second_save_of_a_step_leaves_the_first(tmp_path: Path) -> None:
    """One process dies during the second save of the only checkpoint: the first one loads, to the bit."""
    writers = Writers([tmp_path] * 2, keep=1, timeout_seconds=5)
    writers.save(1)
    again = join_shards.make_state(5)

    def save(rank: int, store: CheckpointStore) -> None:
        if rank == 0:
            store.save(flatten(cut(again, rank, 2)), step=1)

    failure, _ = writers.each(save)
    assert isinstance(failure, CheckpointWriteError)
    harness.assert_equal(load_newest(writers.stores[1], ALONE, print), join_shards.make_state(1), "the first save")


def test_process_that_fails_before_its_shard_fails_the_others_at_once(tmp_path: Path) -> None:
    """The others don't wait until the timeout."""
    writers = Writers([tmp_path] * 2)
    began = time.monotonic()

    def save(rank: int, store: CheckpointStore) -> None:
        if rank == 0:
            store.fail("metrics.jsonl is gone")
        else:
            store.save(flatten(cut(join_shards.make_state(1), rank, 2)), step=1)

    _, failure = writers.each(save)
    assert isinstance(failure, CheckpointWriteError)
    assert failure.why == "process 0: metrics.jsonl is gone"
    assert time.monotonic() - began < 25


def test_checkpoint_with_a_missing_machine_is_not_damaged(tmp_path: Path) -> None:
    """A disk is missing: refused with the missing file's name, nothing renamed; an older whole one is used."""
    writers = Writers([tmp_path / "a", tmp_path / "b"])
    writers.save(2)
    store = writers.stores[0]
    with pytest.raises(IncompleteCheckpointError, match="step-00000002 is incomplete") as refused:
        load_newest(store, ALONE, print)
    assert refused.value.exit_code == 2
    assert "step-00000002/1-of-2." in refused.value.fix
    assert store.newest_name() == "step-00000002"
    Writers([tmp_path / "a"] * 2, keep=9).save(1)
    said: list[str] = []
    harness.assert_equal(load_newest(store, ALONE, said.append), join_shards.make_state(1), "the older one")
    assert store.newest_name() == "step-00000001"
    assert "shard 1 of 2 is on none of these machines" in said[0]


def test_an_old_index_on_one_disk_does_not_count(tmp_path: Path, on_ranks: OnRanks) -> None:
    """A second save of a step was interrupted between the disks' indices: the index with all of its shards counts."""
    writers = Writers([tmp_path / "a", tmp_path / "b"])
    writers.save(1)
    old = (tmp_path / "b" / "step-00000001" / INDEX).read_text()
    writers.save(1, join_shards.make_state(5))
    (tmp_path / "b" / "step-00000001" / INDEX).write_text(old)
    for name in ("ab", "ba"):
        for disk in name:
            shutil.copytree(tmp_path / disk, tmp_path / name / f"disk {name.index(disk)}")
        places = [tmp_path / name / f"disk {rank}" / "step-00000001" for rank in range(2)]
        for state in on_ranks(2, partial(_load_own, places)):
            harness.assert_equal(state, join_shards.make_state(5), name)


def _load_own(places: list[Path], group: ProcessGroup) -> State:
    return load(places[group.rank], group)


def test_saver_reports_a_failure_before_the_shard_with_its_reason(tmp_path: Path) -> None:
    """A file that the state relies on can't be made durable on one process: the other reports the first one's error."""
    writers = Writers([tmp_path] * 2)

    def broken() -> None:
        raise OSError(28, "No space left on device")

    def save(rank: int, store: CheckpointStore) -> None:
        state = cut(join_shards.make_state(1), rank, 2)
        with closing(Saver(store)) as saver:
            snapshot = TrainingSnapshot(step=1, state=state)
            saver.save(replace(snapshot, before_write=broken) if rank == 0 else snapshot)
            saver.wait()

    ours, theirs = writers.each(save)
    assert isinstance(ours, CheckpointWriteError)
    assert isinstance(theirs, CheckpointWriteError)
    assert theirs.why == "process 0: [Errno 28] No space left on device"


def test_missing_peer_before_the_best_weights_is_a_clear_error(tmp_path: Path) -> None:
    """Its ratings are missing: the run ends with an error of ours."""
    store = Writers([tmp_path] * 2, timeout_seconds=0.3).stores[0]
    rating = Rating(metric="val_accuracy", value=0.5, best_is="max")
    with pytest.raises(CheckpointWriteError, match="best-00000001 could not be written"):
        store.save_best(flatten({"rating": rating.dump()}), step=1, rating=rating)
