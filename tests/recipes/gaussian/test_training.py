"""The recipe as users run it: it learns, resumes to the bit, draws samples, exports, and refuses what can't be."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from PIL import Image

from tests.recipes.gaussian.scenes import WIDTH, train, write_scenes
from tests.trainer import harness
from trainer.checkpoints.loading import load
from trainer.group.distributed import ALONE
from trainer.recipes.gaussian.decoder import GaussianDecoder

HFTS = ("hfts.enabled=true", "hfts.pixels=16", "hfts.kept=200", "model.gaussians_per_patch=2")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve pictures, of which one is held out."""
    return write_scenes(tmp_path_factory.mktemp("scenes"), 12)


def test_best_weights_are_those_with_the_best_psnr_of_held_out_pictures(data: Path, tmp_path: Path) -> None:
    """Not those with the smallest training loss. It also learns."""
    output = tmp_path / "output"
    settings = ("epochs=6", "batch_size=4", "optimizer.learning_rate=0.003", "samples.every_epochs=3")
    assert train(output, data, *settings) == 0
    psnr = {row["epoch"]: row["val_psnr"] for row in harness.read_rows(output) if "val_psnr" in row}
    assert max(psnr.values()) > psnr[1] + 1
    assert load(harness.best_checkpoint(output), ALONE)["epoch"] == max(psnr, key=lambda epoch: psnr[epoch])
    with Image.open(output / "samples" / "epoch-000006" / "target-and-rendered.png") as picture:
        pixels = np.asarray(picture)
    assert pixels.shape == (16, 32, 3)
    assert pixels[:, :16].mean() > 20


def test_resumes_to_the_bit_with_hfts(data: Path, tmp_path: Path) -> None:
    """Stopped in the second quarter, where K is 2: the draws of Gaussians and dropout go on as if nothing had been."""
    whole, halves = tmp_path / "whole", tmp_path / "halves"
    settings = ("epochs=4", "batch_size=4", "optimizer.learning_rate=0.003", *HFTS)
    assert train(whole, data, *settings) == 0
    assert train(halves, data, *settings, stop=harness.StopAtLook(6)) == 0
    assert harness.read_status(halves)["state"] == "stopped"
    assert train(halves, data, *settings) == 0
    harness.assert_same_run(halves, whole)


def test_hfts_validates_with_all_pixels_and_all_gaussians(data: Path, tmp_path: Path) -> None:
    """So that its PSNR can be compared: its weights have the same PSNR without HFTS."""
    fast, plain = tmp_path / "fast", tmp_path / "plain"
    settings = ("epochs=1", "batch_size=8", "data.pixels=24", "model.gaussians_per_patch=2")
    assert train(fast, data, *settings, *HFTS[:3]) == 0
    weights = fast / "model.safetensors"
    still = ("max_steps=1", "optimizer.learning_rate=1e-12")
    assert train(plain, data, *settings, *still, flags=("--init", weights)) == 0
    first, second = (harness.read_rows(output)[-1]["val_psnr"] for output in (fast, plain))
    assert first == pytest.approx(second, abs=1e-3)


def test_batch_larger_than_the_data_is_refused(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Fresnel's `custom 100 512 256` with 500 pictures trains no step, and says it has succeeded."""
    assert train(tmp_path / "output", data, "batch_size=512") == 2
    assert "512" in capsys.readouterr().err
    assert not (tmp_path / "output").exists()


def test_exported_model_runs_without_torch(data: Path, tmp_path: Path) -> None:
    """Names and shapes are those of fresnel's export; onnxruntime's Gaussians are torch's."""
    output = tmp_path / "output"
    assert train(output, data, "max_steps=1", "batch_size=4", "onnx=true") == 0
    session = onnxruntime.InferenceSession(str(output / "model.onnx"), providers=["CPUExecutionProvider"])
    inputs = {each.name: each.shape for each in session.get_inputs()}
    assert inputs == {"features": ["batch", WIDTH, 37, 37], "depth": ["batch", 1, 518, 518]}
    names = ["positions", "scales", "rotations", "colors", "opacities"]
    assert [each.name for each in session.get_outputs()] == names
    features, depth = torch.randn(3, WIDTH, 37, 37), torch.rand(3, 1, 518, 518)
    theirs = session.run(names, {"features": features.numpy(), "depth": depth.numpy()})
    model = GaussianDecoder(WIDTH, per_patch=1, dropout=0).eval()
    model.load_state_dict(load(harness.best_checkpoint(output), ALONE)["model"])
    with torch.no_grad():
        ours = model(features, depth)
    for name, one, other in zip(names, ours, theirs, strict=True):
        if name == "rotations":  # q and -q are the same rotation
            other = other * np.sign((one.numpy() * other).sum(-1, keepdims=True))  # noqa: PLW2901
        np.testing.assert_allclose(one.numpy(), other, atol=1e-4, err_msg=name)
