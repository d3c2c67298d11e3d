"""The checkpoint folder: what is kept, what is chosen, what is left alone."""

import math
from pathlib import Path

import pytest
import torch

from trainer.base.errors import CheckpointWriteError
from trainer.checkpoints.document import read_document
from trainer.checkpoints.loading import load_best, load_newest
from trainer.checkpoints.store import CheckpointStore, Rating, load_checkpoint
from trainer.checkpoints.tree import flatten
from trainer.group.distributed import ALONE

OURS = {"recipe": "digits", "widths": (1, 2)}


def open_store(folder: Path, *, keep: int = 2, keep_best: int = 1, **fingerprint: object) -> CheckpointStore:
    store = CheckpointStore(folder, keep=keep, keep_best=keep_best, fingerprint=fingerprint or OURS)
    store.prepare()
    return store


def save_best(
    store: CheckpointStore,
    step: int,
    value: float,
    *,
    best_is: str = "max",
    metric: str = "val_accuracy",
    **fingerprint: object,
) -> None:
    rating = Rating(metric=metric, value=value, best_is=best_is)  # type: ignore[arg-type]  # a test's shorthand
    state = {"fingerprint": fingerprint or OURS, "rating": rating.dump(), "model": {"weight": torch.tensor(value)}}
    store.save_best(flatten(state), step=step, rating=rating)


def best_steps(store: CheckpointStore) -> list[int]:
    return [int(path.stem.removeprefix("best-")) for path in store.list_best()]


def test_pruning_keeps_the_newest_by_step(tmp_path: Path) -> None:
    """Two are kept, by step and not by name or time; the best weights and others' files are left alone."""
    store = open_store(tmp_path)
    (tmp_path / "notes.safetensors").write_text("mine")
    save_best(store, 1, 0.5)
    for step in (3, 100_000_000, 20):
        store.save(flatten({"step": step}), step=step)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "best-00000001.safetensors",
        "notes.safetensors",
        "step-00000020.safetensors",
        "step-100000000.safetensors",
    ]
    assert store.newest_name() == "step-100000000.safetensors"


def test_milestones_are_never_pruned_also_by_a_later_process(tmp_path: Path) -> None:
    """Steps 2 and 4 of 7 are milestones, two are kept beside them; a format-1 file and a damaged one are none."""
    store = open_store(tmp_path)
    for step in (1, 2, 3, 4):
        store.save(flatten({"step": step}), step=step, is_milestone=step % 2 == 0)
    later = open_store(tmp_path)
    (tmp_path / "step-00000000.safetensors").write_bytes(b"half")
    torch.save({"format": 1}, tmp_path / "step-00000001.pt")
    for step in (5, 6, 7):
        later.save(flatten({"step": step}), step=step)
    assert [int(path.stem.removeprefix("step-")) for path in later.list_steps()] == [7, 6, 4, 2]
    assert load_checkpoint(tmp_path / "step-00000002.safetensors") == {"step": 2}
    later.save(flatten({"step": 4}), step=4)
    later.save(flatten({"step": 8}), step=8)
    assert [int(path.stem.removeprefix("step-")) for path in later.list_steps()] == [8, 7, 2]


def test_ratings_of_two_metrics_are_not_compared(tmp_path: Path) -> None:
    """The run goes on with another metric, whose values are smaller: its first validation is the best so far.

    A run that was killed between the write and the pruning loads the later metric's weights.
    """
    store = open_store(tmp_path, keep_best=2)
    save_best(store, 1, 0.9)
    save_best(store, 2, 0.95)
    earlier = {path: path.read_bytes() for path in store.list_best()}
    save_best(store, 3, 0.2, metric="val_iou")
    assert best_steps(store) == [3]
    save_best(store, 4, 0.3, metric="val_iou")
    assert best_steps(store) == [4, 3]
    save_best(store, 5, 0.1, metric="val_iou", best_is="min")
    assert best_steps(store) == [5]
    for path, content in earlier.items():
        path.write_bytes(content)
    best = load_best(store, ALONE, lambda _: None)
    assert best is not None
    assert best["rating"] == {"metric": "val_iou", "value": 0.1, "best_is": "min"}


def test_newest_intact_one_is_loaded_and_the_damaged_one_set_aside(tmp_path: Path) -> None:
    """The damaged one keeps its content under another name, and is reported."""
    store, said = open_store(tmp_path), list[str]()
    for step in (1, 2):
        store.save(flatten({"fingerprint": OURS, "step": step}), step=step)
    (tmp_path / "step-00000002.safetensors").write_bytes(b"half")
    assert load_newest(store, ALONE, said.append) == {"fingerprint": OURS, "step": 1}
    assert (tmp_path / "step-00000002.safetensors.damaged").read_bytes() == b"half"
    assert "step-00000002.safetensors does not load" in said[0]


@pytest.mark.parametrize(
    ("best_is", "kept"), [("max", [5, 2, 3]), ("min", [1, 4, 3])], ids=["larger is better", "smaller is better"]
)
def test_best_few_are_kept_in_order_and_the_earlier_wins_a_tie(tmp_path: Path, best_is: str, kept: list[int]) -> None:
    """Five validations, three kept, the very best first."""
    store = open_store(tmp_path, keep_best=3)
    for step, value in enumerate((0.1, 0.7, 0.5, 0.3, 0.9, 0.5), start=1):
        save_best(store, step, value, best_is=best_is)
    assert best_steps(store) == kept
    assert len(list(tmp_path.glob("best-*"))) == 3


@pytest.mark.parametrize("best_is", ["max", "min"])
def test_weights_whose_metric_is_no_number_are_never_the_best(tmp_path: Path, best_is: str) -> None:
    """NaN and infinity: not written, whether there are other weights or not."""
    store = open_store(tmp_path)
    for step, value in enumerate((math.nan, 0.5, math.inf, -math.inf, math.nan), start=1):
        save_best(store, step, value, best_is=best_is)
    assert best_steps(store) == [2]


def test_best_weights_of_a_repeated_step_are_replaced(tmp_path: Path) -> None:
    """After a resume the same step comes again: one file, the later content."""
    store = open_store(tmp_path)
    save_best(store, 4, 0.5)
    save_best(store, 4, 0.25)
    assert best_steps(store) == [4]
    assert read_document(store.list_best()[0])["rating"]["value"] == 0.25


def test_best_weights_of_another_configuration_are_not_ours(tmp_path: Path) -> None:
    """They are ignored, not loaded and not deleted."""
    other = open_store(tmp_path, recipe="other")
    save_best(other, 1, 0.99, recipe="other")
    store = open_store(tmp_path)
    save_best(store, 2, 0.5)
    assert best_steps(store) == [2]
    best = load_best(store, ALONE, lambda _: None)
    assert best is not None
    assert best["rating"]["value"] == 0.5
    assert best_steps(other) == [1]


def test_damaged_best_weights_are_reported_and_the_next_are_used(tmp_path: Path) -> None:
    """The best has a flipped bit in its data, the second is intact; without an intact one, there is none."""
    store, said = open_store(tmp_path, keep_best=2), list[str]()
    save_best(store, 1, 0.5)
    save_best(store, 2, 0.75)
    best, second = store.list_best()
    best.write_bytes(best.read_bytes()[:-1] + b"\1")
    loaded = load_best(store, ALONE, said.append)
    assert loaded is not None
    assert loaded["rating"]["value"] == 0.5
    assert said == [f"{best.name} does not load (its data fails its checksum)"]
    second.write_bytes(b"")
    assert load_best(store, ALONE, said.append) is None


def test_failed_save_leaves_the_earlier_ones_and_no_temporary_file(tmp_path: Path) -> None:
    """The folder is gone: one clear error that says where to make room."""
    store = CheckpointStore(tmp_path / "gone", keep=2, fingerprint={})
    with pytest.raises(CheckpointWriteError, match="could not be written") as caught:
        store.save(flatten({"step": 1}), step=1)
    assert "--checkpoint-dir" in caught.value.fix


@pytest.mark.parametrize("elements", [0, 1, 1023, 1024, 1_048_576, 1_048_577, 3_000_001])
def test_any_size_is_written_whole(elements: int, tmp_path: Path) -> None:
    """Smaller and larger than a block and than one direct write, and exactly as large."""
    store = open_store(tmp_path)
    weight = torch.arange(elements, dtype=torch.float32)
    store.save(flatten({"model": {"weight": weight}}), step=1)
    assert torch.equal(load_checkpoint(store.list_steps()[0])["model"]["weight"], weight)


def test_file_system_without_direct_writes_is_written_to(tmp_path: Path) -> None:
    """A file system in memory has no direct writes: the file is written anyway, as in any other folder."""
    memory = Path("/dev/shm")
    folder = memory if memory.is_dir() else tmp_path
    path = folder / f"kedge-{tmp_path.name}-{tmp_path.parent.name}"
    path.mkdir()
    try:
        store = open_store(path)
        store.save(flatten({"model": {"weight": torch.ones(2_000_000)}}), step=1)
        assert bool((load_checkpoint(store.list_steps()[0])["model"]["weight"] == 1).all())
    finally:
        for file in path.iterdir():
            file.unlink()
        path.rmdir()
