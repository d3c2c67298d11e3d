"""Whole runs: all layouts learn the same, mixup resumes to the bit, rates are found, mistakes are refused."""

import re
from pathlib import Path

import pytest

from benchmarks.learning.bar import QUIET, learn
from benchmarks.learning.imagenet import BAR, SHORT
from tests.recipes.imagenet.runs import SMALL, train
from tests.trainer import harness


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_it_learns_to_tell_shapes_apart(tmp_path: Path) -> None:
    """A constant has one of six right."""
    learnt = learn(SHORT, tmp_path, seed=0, settings=QUIET)
    assert learnt.untrained == pytest.approx(1 / 6, abs=0.02)
    assert SHORT.is_reached(learnt.value), learnt.value
    assert BAR.reach > SHORT.reach > 2 * learnt.untrained


def test_a_run_that_is_stopped_in_mid_epoch_ends_with_the_same_bits(folders: Path, tmp_path: Path) -> None:
    """With mixup and strong augmentation, whose random numbers are the samples' own."""
    whole, parted = tmp_path / "whole", tmp_path / "parted"
    settings = ("epochs=2", "checkpoint.every_steps=1", "log_every_steps=1")
    assert train(whole, folders, *settings) == 0
    assert train(parted, folders, *settings, stop=harness.StopAtLook(3)) == 0
    assert harness.read_status(parted)["state"] == "stopped"
    assert train(parted, folders, *settings) == 0
    harness.assert_same_run(parted, whole)


def test_batches_are_mixed_as_a_whole_by_any_number_of_loaders(folders: Path, tmp_path: Path) -> None:
    """Pictures are mixed before the batch is split, in the process or in a loader."""
    from trainer.base.overrides import apply_overrides
    from trainer.data.loader import BatchLoader
    from trainer.recipes.imagenet import build_workload, recipe

    settings = apply_overrides(recipe().settings, [*SMALL, f"data.folder={folders}"])
    workload = build_workload(settings)
    batches = []
    for workers in (0, 2):
        loader = BatchLoader(workload.train_data, collate=workload.collate, seed=0, device=harness.CPU, workers=workers)
        batches.append(next(loader.batches(epoch=0, batch_size=12)))
        loader.close()
    harness.assert_equal(batches[0], batches[1], "batch")
    assert [part.shape[0] for part in batches[0]] == [12, 12, 12, 12]


def test_a_run_finds_its_rate_and_pushes_one_cycle_through(folders: Path, tmp_path: Path) -> None:
    """`auto` with the recipe's scaling: the rate is for a batch of 256."""
    settings = ("optimizer.learning_rate=auto", "schedule.name=one_cycle", "max_steps=3", "log_every_steps=1")
    assert train(tmp_path / "output", folders, *settings) == 0
    rows = [row for row in harness.read_rows(tmp_path / "output") if "lr" in row]
    assert 1e-6 < max(row["lr"] for row in rows) < 1


@pytest.mark.parametrize(
    "settings",
    [
        ("compute.gradient_checkpointing=true", "micro_batch=6"),
        ("compute.amp=bf16", "compute.channels_last=true", "compute.sync_batchnorm=true"),
        ("loss.mixup=0", "loss.smoothing=0", "data.augmentation=plain", "schedule.name=warm_restarts"),
    ],
)
def test_it_trains_with_the_settings_of_the_engine(folders: Path, tmp_path: Path, settings: tuple[str, ...]) -> None:
    assert train(tmp_path / "output", folders, *settings, "max_steps=2") == 0
    last = [row for row in harness.read_rows(tmp_path / "output") if "val_top1" in row][-1]
    assert 0 <= last["val_top1"] <= last["val_top5"] <= 1


@pytest.mark.parametrize(("layout", "settings"), [("shards", ("data.classes=6",)), ("parquet", ())])
def test_other_layouts_train_with_loaders(
    layout: str, settings: tuple[str, ...], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Two loader processes read them."""
    data = request.getfixturevalue(layout)
    assert train(tmp_path / "output", data, *settings, "workers=2", "max_steps=2") == 0
    assert harness.read_status(tmp_path / "output")["state"] == "succeeded"


def test_a_folder_without_pictures_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train(tmp_path / "output", tmp_path) == 2
    assert re.search(r"has no pictures\n.*train/CLASS.*\n.*data\.folder", capsys.readouterr().err)


def test_a_damaged_picture_ends_the_run_with_its_name(
    folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import shutil

    data = Path(shutil.copytree(folders, tmp_path / "data"))
    path = next((data / "train" / "n90000000").iterdir())
    path.write_bytes(path.read_bytes()[:200])
    assert train(tmp_path / "output", data) == 1
    err = capsys.readouterr().err
    assert f"the picture {path} can't be read" in err
    assert "Traceback" not in err
