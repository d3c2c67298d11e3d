"""The recipe as a whole: trained, resumed, exported, and started from the original project's checkpoints."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from tests.trainer import harness
from trainer.base.errors import BadRequestError
from trainer.base.signals import StopFlag
from trainer.checkpoints.remap import remap
from trainer.cli import main
from trainer.generators import generate_data
from trainer.recipes.surface import build_workload, recipe
from trainer.recipes.surface.networks import Variant, make_network
from trainer.recipes.surface.scoring import ScoreMetric, measure

PAGE = Path(__file__).parents[3] / "docs" / "workflows" / "vesuvius.md"
SMALL = (
    "workers=0",
    "epochs=2",
    "batch_size=2",
    "checkpoint.every_steps=1",
    "data.patch=16",
    "data.patches=2",
    "model.depth=2",
    "model.base_filters=2",
    "data.scored_patches=1",
    "curves=false",
)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("surface") / "data"
    generate_data("surface", folder, count=4, seed=1)
    return folder


@pytest.fixture(scope="module")
def trained(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "whole"
    done = harness.run(folder, *SMALL, f"data.folder={data}", "samples.every_epochs=1", recipe="surface")
    assert done.code == 0, done.err
    return folder


def train(folder: Path, *settings: str, flags: Sequence[str] = ()) -> int:
    """Run the trainer in this process."""
    argv = ["surface", *harness.settings_args(settings), *flags, "--output-dir", str(folder)]
    return main(argv, environ={}, stop=StopFlag())


def test_defaults_are_the_published_settings() -> None:
    """AdamW 1e-3 with weight decay 1e-4, cosine to 1e-5, clip 1, milestones each 25 epochs, batches of 4 patches."""
    settings = recipe().settings
    assert (settings.epochs, settings.batch_size, settings.data.patch) == (200, 4, 128)
    assert dataclasses.astuple(settings.loss)[:6] == (2, 0.3, 0.3, 0.2, (0.3, 3.0, 0.3), 2.0)
    optimizer, schedule = settings.optimizer, settings.schedule
    assert (optimizer.name, optimizer.learning_rate, optimizer.weight_decay) == ("adamw", 1e-3, 1e-4)
    assert (optimizer.clip_norm, schedule.name) == (1.0, "cosine")
    assert schedule.final == pytest.approx(0.01)
    assert settings.checkpoint.keep_every_epochs == 25


def test_run_leaves_weights_onnx_a_picture_and_the_score(trained: Path) -> None:
    """What the job file fetches."""
    assert (trained / "model.onnx").stat().st_size > 0
    rows = harness.read_rows(trained)
    last = [row for row in rows if row.get("val_dice") is not None][-1]
    assert {"val_loss", "val_score", "val_topology", "val_surface_dice", "val_voi"} <= set(last)
    parts = 0.3 * last["val_topology"] + 0.35 * last["val_surface_dice"] + 0.35 * last["val_voi"]
    assert last["val_score"] == pytest.approx(parts, abs=1e-5)
    with Image.open(trained / "samples" / "epoch-000002" / "slice.png") as picture:
        assert picture.size == (48, 16)


def test_run_that_was_interrupted_ends_with_the_same_bits(data: Path, trained: Path, tmp_path: Path) -> None:
    """Samples come from their generator alone, also with a cache of decoded volumes."""
    folder = tmp_path / "run"
    shutil.copytree(trained, folder)
    checkpoints = sorted((folder / "checkpoints").glob("step-*"))
    assert len(checkpoints) == 3
    for late in checkpoints[1:]:
        late.unlink()
    assert train(folder, *SMALL, f"data.folder={data}", f"data.cache={tmp_path / 'cache'}", "onnx=false") == 0
    assert list((tmp_path / "cache").rglob("*.npy"))
    whole, resumed = load_file(trained / "model.safetensors"), load_file(folder / "model.safetensors")
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


@pytest.mark.parametrize(("variant", "base_filters", "depth"), [("v1", 2, 3), ("v2", 2, 3), ("v3", 2, 3)])
def test_original_checkpoints_load_through_init(
    data: Path, tmp_path: Path, variant: Variant, base_filters: int, depth: int
) -> None:
    """Their layout, with torch.compile's prefix: the first validation is that of these weights."""
    torch.manual_seed(7)
    network = make_network(variant, base_filters=base_filters, depth=depth)
    old = tmp_path / f"best_model_{variant}.pth"
    torch.save(original_layout(network, variant), old)
    new = tmp_path / "new.safetensors"
    line = remap(old, new)
    assert "from model_state_dict" in line
    assert "wrappers removed" in line
    for start in (old, new):
        folder = tmp_path / start.name.replace(".", "-")
        words = [*SMALL, f"data.folder={data}", "data.patch=32", f"model.variant={variant}", f"model.depth={depth}"]
        words += ["max_steps=1", "onnx=false", "optimizer.learning_rate=1e-30", "optimizer.weight_decay=0"]
        assert train(folder, *words, flags=("--init", str(start))) == 0
        weights = load_file(folder / "model.safetensors")
        assert weights.keys() == network.state_dict().keys()
        assert all(torch.allclose(weights[name], value) for name, value in network.state_dict().items())


def original_layout(network: torch.nn.Module, variant: str) -> dict[str, Any]:
    """A checkpoint as the original project's training script saves it (src_v2/train.py, src_v3/train.py)."""
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3, weight_decay=1e-4)
    for weight in network.parameters():
        weight.grad = torch.zeros_like(weight)
    optimizer.step()
    return {
        "epoch": 50,
        "model_state_dict": {f"_orig_mod.{name}": value for name, value in network.state_dict().items()},
        "optimizer_state_dict": optimizer.state_dict(),
        "scheduler_state_dict": {"T_max": 200, "eta_min": 1e-5, "last_epoch": 50},
        "scaler_state_dict": {"scale": 65536.0},
        "best_val_loss": 0.6728,
        "val_metrics": {"total": 0.6728, "surface_voxel_dice": 0.2538},
        "pipeline": variant,
    }


def test_original_training_goes_on_with_its_next_epoch(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the page's words: the original counts epochs from 1, so that after the 50th comes the 51st."""
    words = re.search(r"`--from (checkpoint_v2_epoch50\.pth)((?: --[a-z-]+ \d+)*)`", PAGE.read_text())
    assert words
    old, folder = tmp_path / words[1], tmp_path / "run"
    torch.save(original_layout(make_network("v2", base_filters=2, depth=2), "v2"), old)
    settings = (*SMALL, f"data.folder={data}", "epochs=51", "onnx=false", "log_every_steps=1")
    assert train(folder, *settings, flags=("--from", str(old), *words[2].split())) == 0
    assert "another trainer's: epoch 51 of 51, 0 of " in capsys.readouterr().out
    assert {row["epoch"] for row in harness.read_rows(folder) if "lr" in row} == {51}


ORIGINAL_NAMES = {
    "v1": ["init_conv.block.0.weight", "encoders.0.down.0.weight", "encoders.2.conv.block.4.bias"],
    "v2": ["bottleneck.down.1.weight", "decoders.3.up.weight", "decoders.0.conv.block.3.weight", "aux_heads.2.bias"],
    "v3": ["unet_128.final_conv.bias", "unet_32.decoders.2.up.weight", "fusion.weight"],
}


@pytest.mark.parametrize("variant", ["v1", "v2", "v3"])
def test_weights_have_the_original_projects_names(variant: Variant) -> None:
    """So that its checkpoints fit, and its inference reads ours."""
    with torch.device("meta"):
        names = set(make_network(variant, base_filters=2, depth=4).state_dict())
    assert set(ORIGINAL_NAMES[variant]) <= names


def test_patch_that_does_not_fit_is_refused_before_data_are_read() -> None:
    """Exit 2 for the user: the message has a size that fits."""
    settings = recipe().settings
    settings = dataclasses.replace(settings, data=dataclasses.replace(settings.data, patch=100))
    with pytest.raises(BadRequestError) as refusal:
        build_workload(settings)
    assert "data.patch=96" in refusal.value.fix


def test_missing_folder_is_refused_without_a_traceback(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 2."""
    assert train(tmp_path / "out", f"data.folder={tmp_path}") == 2
    assert "train.csv can't be read as the list of volumes" in capsys.readouterr().err


class Fixed(torch.nn.Module):
    """Predicts the surface where the volume is bright."""

    def forward(self, raw: torch.Tensor) -> torch.Tensor:
        bright = (raw[:, 0] > 0.5).float()
        return torch.stack([1 - bright, bright, torch.zeros_like(bright)], 1)


def test_validation_measures_labelled_voxels_only(data: Path) -> None:
    """A perfect prediction has Dice 1 and score 1, whatever it says where nothing is labelled."""
    settings = recipe().settings
    changed = dataclasses.replace(settings.data, folder=str(data), patch=16, scored_patches=1)
    model = dataclasses.replace(settings.model, depth=2, base_filters=1)
    workload = build_workload(dataclasses.replace(settings, data=changed, model=model))
    patch = workload.validation_data.sample(0, np.random.default_rng(0))
    bright = torch.where(patch.labels == 2, torch.rand(patch.labels.shape), (patch.labels == 1).float())
    batch = type(patch)(*(each[None] for each in patch._replace(raw=bright[None])))
    assert batch.is_scored.all()
    assert measure(Fixed(), batch, settings.loss)["dice"].tolist() == [1.0]
    metric = ScoreMetric(ignore_index=2)
    metric.update(Fixed(), batch)
    assert metric.merge([metric.state()])["score"] == pytest.approx(1)
    everywhere = ScoreMetric(ignore_index=-1)
    everywhere.update(Fixed(), batch)
    assert everywhere.merge([everywhere.state()])["score"] < 1
    assert json.dumps(metric.state())
