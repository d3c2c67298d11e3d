"""Checkpoints in shards: written by several together, whole or absent, read by any number, hostile or not."""

import json
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch.distributed import HashStore  # type: ignore[attr-defined]  # public, but not in its __all__

from tests.trainer import harness, join_shards
from trainer.checkpoints.document import write_document
from trainer.checkpoints.loading import load, load_best, load_newest
from trainer.checkpoints.peers import Peers
from trainer.checkpoints.remap import remap
from trainer.checkpoints.saver import Saver, Snapshot
from trainer.checkpoints.shards import INDEX, chunk_rows
from trainer.checkpoints.store import CheckpointStore, Rating
from trainer.checkpoints.tree import Flat, Slice, State, flatten
from trainer.cli import main
from trainer.distributed import ALONE
from trainer.errors import BadRequestError, CheckpointWriteError, DamagedCheckpointError, IncompleteCheckpointError
from trainer.signals import StopFlag

FINGERPRINT = {"recipe": "digits"}


def cut(whole: Any, rank: int, size: int) -> Any:
    """Leave one process's rows of all tensors that have any."""
    if isinstance(whole, torch.Tensor) and whole.dim():
        rows = chunk_rows(len(whole), rank, size)
        return Slice(tensor=whole[rows.start : rows.stop], begin=rows.start, total=len(whole))
    if isinstance(whole, dict):
        return {key: cut(value, rank, size) for key, value in whole.items()}
    return whole


class Writers:
    """Several processes that write together, as threads; each with a folder of its own, or all with one."""

    def __init__(self, folders: list[Path], *, keep: int = 2, patience_seconds: float = 30) -> None:
        meeting = HashStore()
        self.stores = [
            CheckpointStore(
                folder,
                keep=keep,
                fingerprint=FINGERPRINT,
                peers=Peers(
                    meeting,
                    rank=rank,
                    size=len(folders),
                    leads_machine=rank == 0 or folder != folders[rank - 1],
                    patience_seconds=patience_seconds,
                    leaving_seconds=0.2,
                ),
            )
            for rank, folder in enumerate(folders)
        ]
        for store in self.stores:
            store.prepare()

    def each(self, act: Callable[[int, CheckpointStore], None]) -> list[BaseException | None]:
        """Have all act at once; return how each failed."""
        with ThreadPoolExecutor(len(self.stores)) as pool:
            return [future.exception() for future in [pool.submit(act, *item) for item in enumerate(self.stores)]]

    def save(self, step: int, state: State | None = None) -> list[BaseException | None]:
        """Save one step by all."""
        whole, size = state or join_shards.make_state(step), len(self.stores)
        return self.each(lambda rank, store: store.save(flatten(cut(whole, rank, size)), step=step))

    def save_best(self, step: int, value: float) -> list[BaseException | None]:
        """Save weights by all."""
        rating = Rating(metric="val_accuracy", value=value, best_is="max")
        whole, size = {"rating": rating.dump(), **join_shards.make_state(step)}, len(self.stores)
        return self.each(lambda rank, store: store.save_best(flatten(cut(whole, rank, size)), step=step, rating=rating))


def shard_of(folder: Path, rank: int) -> Path:
    (path,) = folder.glob(f"{rank}-of-*.safetensors")
    return path


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def flip_last_byte(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1] + bytes([path.read_bytes()[-1] ^ 1]))


@pytest.mark.parametrize("size", [2, 3, 5])
def test_shards_of_any_number_hold_the_whole_state(size: int, tmp_path: Path) -> None:
    """Uneven rows, fewer rows than processes, tensors without rows, tuples: all of it, to the bit."""
    writers = Writers([tmp_path] * size)
    assert writers.save(7) == [None] * size
    harness.assert_equal(load(tmp_path / "step-00000007", ALONE), join_shards.make_state(7), "step 7")


def test_shard_is_a_plain_safetensors_file_with_its_part_only(tmp_path: Path) -> None:
    """Hugging Face's reader finds the second process's rows under the model's names, and nothing else."""
    Writers([tmp_path] * 2).save(7)
    second = load_file(shard_of(tmp_path / "step-00000007", 1))
    whole = join_shards.make_state(7)["model"]
    assert torch.equal(second["weight"], whole["weight"][4:])
    assert "scale" not in second
    assert (tmp_path / "step-00000007" / INDEX).read_text().startswith('{"format": "kedge shards 1"')


def test_last_ones_are_kept_and_what_was_never_finished_goes(tmp_path: Path) -> None:
    """Folders are pruned as files are; shards without an index are no checkpoint, and are removed once they are old."""
    writers = Writers([tmp_path] * 2)
    writers.save(1)
    writers.save(2)
    (tmp_path / "step-00000002" / INDEX).unlink()
    (tmp_path / "step-00000009").mkdir()
    (tmp_path / "step-00000009" / "0-of-2.01234567.safetensors").write_text("somebody is still writing")
    assert writers.stores[0].newest_name() == "step-00000001"
    writers.save(3)
    writers.save(4)
    kept = sorted(path.name for path in tmp_path.iterdir())
    assert kept == ["step-00000003", "step-00000004", "step-00000009"]


def test_half_written_files_of_a_killed_process_are_cleared_away(tmp_path: Path) -> None:
    """At the next start."""
    writers = Writers([tmp_path] * 2)
    writers.save(1)
    (tmp_path / "step-00000001" / ".1-of-2.01234567.safetensors.tmp").write_text("half")
    writers.stores[1].prepare()
    assert [name[:6] for name in names(tmp_path / "step-00000001")] == ["0-of-2", "1-of-2", INDEX[:6]]


def test_best_weights_are_chosen_by_the_main_process_for_all(tmp_path: Path) -> None:
    """Worse ones are written by nobody; nobody waits for a shard that doesn't come."""
    writers = Writers([tmp_path / "a", tmp_path / "b"])
    for step, value in ((1, 0.5), (2, 0.25), (3, 0.75)):
        assert writers.save_best(step, value) == [None, None]
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["best-00000003"]
    assert [path.name for path in (tmp_path / "b").iterdir()] == ["best-00000003"]
    shutil.copytree(tmp_path / "b", tmp_path / "a", dirs_exist_ok=True)
    best = load_best(writers.stores[0], ALONE, print)
    assert best is not None
    assert best["rating"]["value"] == 0.75


def test_process_that_dies_leaves_no_index_and_the_others_say_so(tmp_path: Path) -> None:
    """Two of three write: the checkpoint before it stays the newest."""
    writers = Writers([tmp_path] * 3, patience_seconds=0.5)
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


def test_disk_of_one_that_is_full_fails_all_and_names_it(tmp_path: Path) -> None:
    """Nobody waits for its shard."""
    folders = [tmp_path / name for name in ("a", "b")]
    writers = Writers(folders)
    shutil.rmtree(folders[1])
    failures = writers.save(1)
    assert all(isinstance(failure, CheckpointWriteError) for failure in failures)
    assert "process 1: " in str(failures[0])
    assert writers.stores[0].newest_name() is None


def test_process_that_ends_waits_for_the_others_only_shortly(tmp_path: Path) -> None:
    """Its own shard is written; the other one's doesn't come."""
    store = Writers([tmp_path] * 2).stores[0]
    store.leave_soon()
    with pytest.raises(CheckpointWriteError, match="step-00000001 could not be written"):
        store.save(flatten(cut(join_shards.make_state(1), 0, 2)), step=1)
    (only,) = names(tmp_path)
    assert only.startswith("step-00000001/0-of-2.")


def test_step_that_is_saved_again_replaces_the_index_on_every_disk(tmp_path: Path) -> None:
    """Each machine has its own disk; the later content counts, and the earlier is removed."""
    writers = Writers([tmp_path / "a", tmp_path / "b"])
    writers.save(1)
    assert writers.save(1, join_shards.make_state(5)) == [None, None]
    for rank, disk in enumerate("ab"):
        assert [name[:7] for name in names(tmp_path / disk / "step-00000001")] == [f"{rank}-of-2.", INDEX[:7]]
    shutil.copytree(tmp_path / "b", tmp_path / "a", dirs_exist_ok=True)
    harness.assert_equal(load(tmp_path / "a" / "step-00000001", ALONE), join_shards.make_state(5), "saved again")


def test_step_that_is_saved_again_in_vain_is_what_it_was(tmp_path: Path) -> None:
    """One process dies amid the second save of the only checkpoint: the first one loads, to the bit."""
    writers = Writers([tmp_path] * 2, keep=1, patience_seconds=0.5)
    writers.save(1)
    again = join_shards.make_state(5)

    def save(rank: int, store: CheckpointStore) -> None:
        if rank == 0:
            store.save(flatten(cut(again, rank, 2)), step=1)

    failure, _ = writers.each(save)
    assert isinstance(failure, CheckpointWriteError)
    harness.assert_equal(load_newest(writers.stores[1], ALONE, print), join_shards.make_state(1), "the first save")


def test_process_that_fails_before_its_shard_fails_the_others_at_once(tmp_path: Path) -> None:
    """Nobody waits out their patience for what one can't do."""
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
    assert time.monotonic() - began < 10


def test_checkpoint_of_which_a_machine_is_missing_is_no_damage(tmp_path: Path) -> None:
    """One of two disks isn't here: refused with what to bring, nothing renamed; an older one that is whole is used."""
    writers = Writers([tmp_path / "a", tmp_path / "b"])
    writers.save(2)
    store = writers.stores[0]
    with pytest.raises(IncompleteCheckpointError, match="step-00000002 is not whole") as refused:
        load_newest(store, ALONE, print)
    assert refused.value.exit_code == 2
    assert "step-00000002/1-of-2." in refused.value.fix
    assert store.newest_name() == "step-00000002"
    Writers([tmp_path / "a"] * 2, keep=9).save(1)
    said: list[str] = []
    harness.assert_equal(load_newest(store, ALONE, said.append), join_shards.make_state(1), "the older one")
    assert store.newest_name() == "step-00000001"
    assert "shard 1 of 2 is on none of these machines" in said[0]


def test_best_weights_of_any_machine_count(tmp_path: Path) -> None:
    """The main process's disk is new: a worse one replaces nothing, and what is read is what the other disk has."""
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


def test_disk_that_has_the_old_index_still_is_outvoted_by_the_shards(tmp_path: Path) -> None:
    """A second save of a step was cut between the disks' indices: the one whose shards are all there counts."""
    writers = Writers([tmp_path / "a", tmp_path / "b"])
    writers.save(1)
    old = (tmp_path / "b" / "step-00000001" / INDEX).read_text()
    writers.save(1, join_shards.make_state(5))
    (tmp_path / "b" / "step-00000001" / INDEX).write_text(old)
    for name in ("ab", "ba"):
        for disk in name:
            shutil.copytree(tmp_path / disk, tmp_path / name / f"disk {name.index(disk)}")
        ended = harness.run_script(join_shards.__file__, str(tmp_path / name), "same", "5", processes=2)
        assert ended.code == 0, ended.err


def test_failure_before_the_shard_is_told_by_the_saver_with_its_reason(tmp_path: Path) -> None:
    """What the state counts on can't be made durable on one process: the other says why, in the first one's words."""
    writers = Writers([tmp_path] * 2)

    def broken() -> None:
        raise OSError(28, "No space left on device")

    def save(rank: int, store: CheckpointStore) -> None:
        state = cut(join_shards.make_state(1), rank, 2)
        with closing(Saver(store)) as saver:
            snapshot = Snapshot(step=1, state=state)
            saver.save(replace(snapshot, before=broken) if rank == 0 else snapshot)
            saver.wait()

    ours, theirs = writers.each(save)
    assert isinstance(ours, CheckpointWriteError)
    assert isinstance(theirs, CheckpointWriteError)
    assert theirs.why == "process 0: [Errno 28] No space left on device"


def test_peer_that_is_gone_before_the_best_weights_is_a_clear_error(tmp_path: Path) -> None:
    """Nobody tells how good theirs are: the run ends with an error of ours."""
    store = Writers([tmp_path] * 2, patience_seconds=0.3).stores[0]
    rating = Rating(metric="val_accuracy", value=0.5, best_is="max")
    with pytest.raises(CheckpointWriteError, match="best-00000001 could not be written"):
        store.save_best(flatten({"rating": rating.dump()}), step=1, rating=rating)


def test_same_step_in_another_form_is_replaced(tmp_path: Path) -> None:
    """A run that was whole and goes on divided, and the other way round: the last save of a step counts."""
    alone = CheckpointStore(tmp_path, keep=2, fingerprint=FINGERPRINT)
    alone.save(flatten({"step": 1}), step=1)
    Writers([tmp_path] * 2).save(1)
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]
    alone.save(flatten({"step": 1}), step=1)
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001.safetensors"]


def truncate(folder: Path) -> None:
    shard = shard_of(folder, 1)
    shard.write_bytes(shard.read_bytes()[:-1])


def swap_with_another_step(folder: Path) -> None:
    shutil.copy(shard_of(folder.with_name("step-00000001"), 1), shard_of(folder, 1))


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "flipped bit": (lambda folder: flip_last_byte(shard_of(folder, 1)), "fails its checksum"),
    "shard cut short": (truncate, "one of its shards is damaged"),
    "no shard": (lambda folder: shard_of(folder, 0).unlink(), "shard 0 of 2 is on none of these machines"),
    "another step's shard": (swap_with_another_step, "one of its shards is damaged"),
    "index cut short": (lambda folder: (folder / INDEX).write_text('{"format": '), "index makes no sense"),
    "index of lists": (lambda folder: (folder / INDEX).write_text("[" * 10_000), "index makes no sense"),
    "index of another program": (lambda folder: (folder / INDEX).write_text('{"format": "2"}'), "index makes no sense"),
    "index that is endless": (
        lambda folder: (folder / INDEX).write_text(
            (folder / INDEX).read_text().replace('"bytes": ', '"bytes": Infinity, "was": ', 1)
        ),
        "index makes no sense",
    ),
    "index that leads out of the folder": (
        lambda folder: (folder / INDEX).write_text(
            (folder / INDEX).read_text().replace('"file": "', '"file": "../step-00000001/', 1)
        ),
        "index makes no sense",
    ),
    "index without shards": (
        lambda folder: (folder / INDEX).write_text('{"format": "kedge shards 1", "shards": [], "about": {}}'),
        "index makes no sense",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_checkpoint_is_set_aside_and_the_one_before_is_used(damage: str, tmp_path: Path) -> None:
    """Whatever is wrong with it, it keeps its content under another name, and is said."""
    act, why = DAMAGES[damage]
    store, said = Writers([tmp_path] * 2).stores[0], list[str]()
    writers = Writers([tmp_path] * 2)
    writers.save(1)
    writers.save(2)
    act(tmp_path / "step-00000002")
    harness.assert_equal(load_newest(store, ALONE, said.append), join_shards.make_state(1), damage)
    assert why in said[0]
    assert (tmp_path / "step-00000002.damaged").is_dir()
    assert store.newest_name() == "step-00000001"


@pytest.mark.parametrize(
    "rows",
    [(-1, 9), (4, 6), (0, 7), (4, 900), ("a", 7), (4, float("inf")), (0, 1e30), (0, 10**15)],
    ids=["negative", "beyond", "twice", "other total", "words", "endless", "huge", "more than memory"],
)
@pytest.mark.parametrize("rank", [0, 1])
def test_shard_that_lies_about_its_rows_is_damaged(rank: int, rows: tuple[Any, Any], tmp_path: Path) -> None:
    """Its checksums are right: somebody made it so."""
    Writers([tmp_path] * 2).save(1)
    folder = tmp_path / "step-00000001"
    if (rank, rows) == (0, (0, 7)):
        rows = (0, 8)  # else it tells the truth
    index = json.loads((folder / INDEX).read_text())
    whole = join_shards.make_state(1)
    flat = flatten(cut(whole, rank, 2))
    tensors = {name: tensor for name, tensor in flat.tensors.items() if name in flat.rows or rank == 0}
    lying = replace(flat, tensors=tensors, rows={**flat.rows, "weight": rows})
    index["shards"][rank] |= forge(shard_of(folder, rank), lying)
    (folder / INDEX).write_text(json.dumps(index))
    with pytest.raises(DamagedCheckpointError):
        load(folder, ALONE)


def forge(path: Path, flat: Flat) -> dict[str, int]:
    with path.open("wb") as stream:
        write_document(stream, flat)
    header = path.read_bytes()
    length = int.from_bytes(header[:8], "little")
    checksum = json.loads(header[8 : 8 + length])["__metadata__"]["kedge.header"]
    return {"bytes": path.stat().st_size, "checksum": int(checksum)}


def test_remap_makes_one_file_of_shards_and_refuses_one_alone(tmp_path: Path) -> None:
    """The folder gives all weights; a shard by itself would give some rows under the weights' names."""
    Writers([tmp_path] * 2).save(3)
    folder = tmp_path / "step-00000003"
    assert main(["remap", str(folder), str(tmp_path / "all.safetensors")], environ={}, stop=StopFlag()) == 0
    harness.assert_equal(load_file(tmp_path / "all.safetensors"), join_shards.make_state(3)["model"], "remapped")
    with pytest.raises(BadRequestError, match="does not load") as refused:
        remap(shard_of(folder, 1), tmp_path / "part.safetensors")
    assert "a shard, which is nothing without the others" in refused.value.why
    shard_of(folder, 1).unlink()
    with pytest.raises(BadRequestError, match="does not load"):
        remap(folder, tmp_path / "rest.safetensors")


@pytest.mark.slow
@pytest.mark.parametrize("processes", [2, 3])
def test_any_number_of_processes_reads_its_rows_from_whatever_disks_they_are_on(processes: int, tmp_path: Path) -> None:
    """Written by 2, 3 and 4; on one disk, and spread over the disks of the readers in another order."""
    for size in (2, 3, 4):
        Writers([tmp_path / "shared" / str(size)] * size).save(size)
    disks = [tmp_path / f"disk {number}" for number in range(processes)]
    for disk in disks:
        shutil.copytree(tmp_path / "shared" / "4", disk / "step-4-shards")
        for shard in (disk / "step-4-shards" / "step-00000004").glob("*-of-4.*"):
            if (int(shard.name[0]) + 1) % processes != disks.index(disk):
                shard.unlink()
    ended = harness.run_script(join_shards.__file__, str(tmp_path), processes=processes)
    assert ended.code == 0, ended.err
