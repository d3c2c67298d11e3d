"""Whole trainings of a small network: samples, Chamfer distance, a resume to the bit, the originals' checkpoints."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.recipes.pcdiff.small import SETTINGS, save_original
from tests.recipes.pcdiff.written import check_samples
from tests.trainer import harness
from trainer.api import BadRequestError
from trainer.base.signals import StopFlag
from trainer.checkpoints.document import read_document
from trainer.checkpoints.store import load_checkpoint
from trainer.cli import main
from trainer.generators.pcdiff import generate
from trainer.metrics.points import chamfer_distance
from trainer.recipes.pcdiff.diffusion import Diffusion
from trainer.recipes.pcdiff.network import PointVoxelNet
from trainer.recipes.pcdiff.settings import (
    DataSettings,
    DiffusionSettings,
    ModelSettings,
    PCDiffSettings,
    SamplingSettings,
)
from trainer.recipes.pcdiff.workload import build_workload, recipe

# Shape legend: B batch, S points of the skull, I of the implant.
SMALL = (
    *(f"{name}={value}" for name, value in SETTINGS.items()),
    *("workers=0", "curves=false", "log_every_steps=1", "validate.every_epochs=1", "checkpoint.every_epochs=1"),
)
PARAMETERS = 1_821_363


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("data") / "skulls"
    folder.mkdir()
    generate(folder, count=3, seed=0)
    return folder


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A checkpoint of the originals, and what it has."""
    path = tmp_path_factory.mktemp("theirs") / "epoch_1999.pth"
    return path, save_original(path)


def train(data: Path, output: Path, *settings: str, flags: tuple[str, ...] = (), stop: StopFlag | None = None) -> int:
    settings = (*SMALL, f"data.folder={data}", *settings)
    argv = ["pcdiff", *harness.settings_args(settings), *flags, "--output-dir", str(output)]
    return main(argv, environ={}, stop=stop or StopFlag())


def test_trains_makes_implants_and_resumes_to_the_bit(data: Path, tmp_path: Path) -> None:
    whole, halves = tmp_path / "whole", tmp_path / "halves"
    settings = ("epochs=2", "batch_size=5", "data.rotation_degrees=10", "samples.every_epochs=1")
    assert train(data, whole, *settings) == 0
    rows = [row for row in harness.read_rows(whole) if "val_loss" in row]
    assert [row["epoch"] for row in rows] == [1, 2]
    assert all(row["val_chamfer"] > 0 and np.isfinite(row["val_chamfer"]) for row in rows)
    cases = ("002-bilateral", "002-frontoorbital")
    check_samples(data, whole / "samples" / "epoch-000002", cases=cases)
    assert train(data, halves, *settings, stop=harness.StopAtLook(4)) == 0
    assert harness.read_status(halves)["state"] == "stopped"
    assert train(data, halves, *settings) == 0
    harness.assert_same_run(halves, whole)


def test_epoch_1999_of_the_original_goes_on_with_the_2001st(
    data: Path, theirs: tuple[Path, dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """W1: with its moments, another number of processes and another rate than before, which is said."""
    path, content = theirs
    output = tmp_path / "output"
    settings = ("epochs=2001", "batch_size=5", "optimizer.learning_rate=1e-12", "sampling.validation_count=0")
    assert train(data, output, *settings, flags=("--from", str(path))) == 0
    out = capsys.readouterr().out
    assert "goes on from epoch_1999.pth, another trainer's: epoch 2001 of 2001, 0 of 2 steps in" in out
    assert f"kept: the optimizer's moments of {len(content['model_state'])} parameters" in out
    assert [row["step"] for row in harness.read_rows(output) if "lr" in row] == [4001, 4002]
    state = load_checkpoint(harness.newest_checkpoint(output))
    for name, weight in content["model_state"].items():
        assert torch.allclose(state["model"][name.removeprefix("model.module.")], weight, atol=1e-6), name
    assert {int(values["step"]) for values in state["optimizer"]["state"].values()} == {1 + 2}
    # The job gives --from at each attempt: a run with a checkpoint of its own goes on from that.
    more = ("epochs=2002", *settings[1:])
    assert train(data, output, *more, flags=("--from", str(path))) == 0
    assert "epoch_1999.pth, another trainer's" not in capsys.readouterr().out
    assert [row["step"] for row in harness.read_rows(output) if "lr" in row] == [4001, 4002, 4003, 4004]


@pytest.mark.parametrize("prefix", ["model.module.", "model.", "module.", "model._orig_mod.", ""])
def test_weights_of_the_originals_start_a_run_whatever_wrapped_them(
    data: Path, theirs: tuple[Path, dict[str, Any]], tmp_path: Path, prefix: str
) -> None:
    weights = {name.removeprefix("model.module."): weight for name, weight in theirs[1]["model_state"].items()}
    torch.save({"epoch": 3, "model_state": {prefix + name: each for name, each in weights.items()}}, tmp_path / "a.pth")
    settings = ("max_steps=1", "batch_size=5", "optimizer.learning_rate=1e-12", "sampling.validation_count=0")
    assert train(data, tmp_path / "output", *settings, flags=("--init", str(tmp_path / "a.pth"))) == 0
    state = load_checkpoint(harness.newest_checkpoint(tmp_path / "output"))["model"]
    assert state.keys() == weights.keys()
    assert all(torch.allclose(state[name], weights[name], atol=1e-6) for name in weights)


def test_remap_writes_back_what_it_reads(theirs: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    assert main(["remap", str(theirs[0]), str(tmp_path / "new.safetensors")], environ={}, stop=StopFlag()) == 0
    written = read_document(tmp_path / "new.safetensors")["model"]
    expected = {name.removeprefix("model.module."): each for name, each in theirs[1]["model_state"].items()}
    assert written.keys() == expected.keys()
    assert all(torch.equal(written[name], expected[name]) for name in expected)
    assert sum(each.numel() for each in written.values()) == PARAMETERS


def test_the_chamfer_distance_is_that_of_single_samples_however_they_are_shared(data: Path) -> None:
    """One batch of all cases, or a case in each of two processes, gives the same."""
    settings = PCDiffSettings(
        data=DataSettings(folder=str(data), points=120, implant_points=24),
        model=ModelSettings(width=0.25, voxels=0.25, neighbours=4, radius=0.8),
        sampling=SamplingSettings(validation_count=2, validation_steps=2, limit=4),
    )
    workload, process = build_workload(settings), Diffusion(DiffusionSettings())
    assert isinstance(workload.model, PointVoxelNet)
    model = workload.model.eval()
    samples = [workload.validation_data.sample(index, np.random.default_rng(index)) for index in range(5)]
    batch = {name: torch.stack([sample[name] for sample in samples]) for name in samples[0]}
    make_metric = workload.set_metrics["chamfer"]
    metric = make_metric()
    with torch.no_grad():
        metric.update(model, batch)
        parts = []
        for index in (1, 4, 0):
            parts.append(make_metric())
            parts[-1].update(model, {name: values[index : index + 1] for name, values in batch.items()})
    together = metric.merge([metric.state()])
    assert metric.merge([part.state() for part in parts]) == pytest.approx(together, rel=1e-4)
    expected = []
    for index in range(2):
        made = process.sample(model, batch["skull"][[index]], 24, SamplingSettings(steps=2, limit=4), [index])
        expected.append(float(chamfer_distance(made, batch["implant"][[index]])) * float(batch["scale"][index]))
    assert together == pytest.approx(np.mean(expected), rel=1e-4)


@pytest.mark.parametrize(
    ("setting", "why"),
    [
        ("data.implant_points=100", "leaves 20 points to the skull"),
        ("model.width=0.3", "can't be built"),
        ("diffusion.first_beta=0.5", "is larger than"),
        ("compute.fully_shard=true", "can't be computed with compute.fully_shard"),
        ("data.folder=/nowhere", "can't be trained on"),
    ],
)
def test_settings_that_dont_fit_are_refused(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], setting: str, why: str
) -> None:
    assert train(data, tmp_path / "output", "batch_size=5", setting) == 2
    assert why in capsys.readouterr().err


def test_the_defaults_are_the_originals() -> None:
    settings = recipe().settings
    assert (settings.epochs, settings.batch_size) == (15_000, 8)
    optimizer, schedule = settings.optimizer, settings.schedule
    assert (optimizer.name, optimizer.learning_rate, optimizer.betas) == ("adam", 2e-4, (0.5, 0.999))
    assert (optimizer.weight_decay, optimizer.clip_norm, schedule.name, schedule.gamma) == (0, 0, "exponential", 1)
    assert settings.checkpoint.keep_every_epochs == 1000
    with pytest.raises(BadRequestError, match="no data is given"):
        build_workload(settings)
