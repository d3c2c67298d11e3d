"""Features by DINOv2, against transformers' implementation with the same random weights; depths by an ONNX model."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from PIL import Image
from torch import nn
from transformers import Dinov2Config, Dinov2Model

from tests.recipes.gaussian.scenes import write_scenes
from trainer.base.errors import BadRequestError
from trainer.base.signals import StopFlag
from trainer.checks import check_data
from trainer.cli import main
from trainer.preprocess.dinov2 import DinoV2, build_dinov2
from trainer.preprocess.gaussian import normalise, scale_depth
from trainer.report.export import export_onnx

assert onnxruntime, os.environ  # imported before, it sends no telemetry
BLOCK = {
    "norm1": "norm1",
    "norm2": "norm2",
    "attn.proj": "attention.o_proj",
    "mlp.fc1": "mlp.fc1",
    "mlp.fc2": "mlp.fc2",
}


def rename(theirs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Give transformers' weights the names of the official checkpoints, in which q, k and v are one matrix."""
    ours = {
        "cls_token": theirs["embeddings.cls_token"],
        "mask_token": theirs["embeddings.mask_token"],
        "pos_embed": theirs["embeddings.position_embeddings"],
    }
    for kind in ("weight", "bias"):
        ours[f"patch_embed.proj.{kind}"] = theirs[f"embeddings.patch_embeddings.projection.{kind}"]
        ours[f"norm.{kind}"] = theirs[f"layernorm.{kind}"]
        for number in range(sum(name.endswith("layer_scale1.lambda1") for name in theirs)):
            layer, block = f"encoder.layer.{number}", f"blocks.{number}"
            parts = [theirs[f"{layer}.attention.{part}_proj.{kind}"] for part in "qkv"]
            ours[f"{block}.attn.qkv.{kind}"] = torch.cat(parts)
            ours |= {f"{block}.{own}.{kind}": theirs[f"{layer}.{other}.{kind}"] for own, other in BLOCK.items()}
            ours |= {f"{block}.ls{n}.gamma": theirs[f"{layer}.layer_scale{n}.lambda1"] for n in (1, 2)}
    return ours


def make_theirs(width: int, depth: int, grid: int) -> Dinov2Model:
    """A small DINOv2 of transformers, all of whose weights matter."""
    config = Dinov2Config(
        hidden_size=width,
        num_hidden_layers=depth,
        num_attention_heads=width // 64,
        image_size=14 * grid,
        patch_size=14,
    )
    torch.manual_seed(0)
    model: Dinov2Model = Dinov2Model(config)
    model.train(mode=False)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.1 * torch.randn_like(weight))
    return model


@pytest.mark.parametrize(("rows", "columns"), [(5, 5), (8, 8), (3, 6)])
def test_features_are_those_of_transformers(rows: int, columns: int) -> None:
    """Also where the positions are interpolated: they are of 5 x 5 patches."""
    theirs = make_theirs(128, 3, 5)
    model = build_dinov2(rename(theirs.state_dict()), "weights")
    images = torch.randn(2, 3, 14 * rows, 14 * columns)
    with torch.no_grad():
        expected = theirs(images).last_hidden_state[:, 1:].reshape(2, rows, columns, 128)
        torch.testing.assert_close(model(images), expected, atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize(
    ("width", "depth", "parameters"), [(384, 12, 22_056_576), (768, 12, 86_580_480), (1024, 24, 304_368_640)]
)
def test_sizes_are_those_of_the_paper(width: int, depth: int, parameters: int) -> None:
    """Oquab et al. 2023: 21 M, 86 M and 300 M; the mask token is counted as well."""
    with torch.device("meta"):
        ours = sum(weight.numel() for weight in DinoV2(width, depth, 37).parameters())
        config = Dinov2Config(
            hidden_size=width, num_hidden_layers=depth, num_attention_heads=width // 64, image_size=518, patch_size=14
        )
        theirs = sum(weight.numel() for weight in Dinov2Model(config).parameters())
    assert ours + width == theirs == parameters


def write_weights(path: Path, width: int) -> Path:
    torch.manual_seed(0)
    model = DinoV2(width, 1, 37)
    torch.save({**model.state_dict(), "mask_token": torch.zeros(1, width)}, path)
    return path


def write_depth_model(path: Path) -> Path:
    """A model whose depth is a picture's mean over its colours."""

    class Mean(nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return images.mean(1)

    export_onnx(Mean(), (torch.zeros(2, 3, 518, 518),), path)
    return path


def run(*words: str | Path) -> int:
    return main(["preprocess", "gaussian", *map(str, words)], environ={}, stop=StopFlag())


def test_features_and_depths_are_made_and_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What they are is what the check and the recipe read; a second call makes only what is missing."""
    data = write_scenes(tmp_path / "data", 2)
    for path in data.glob("features/*"):
        path.unlink()
    weights, depth = write_weights(tmp_path / "s.pth", 384), write_depth_model(tmp_path / "depth.onnx")
    words = ("--data", data, "--weights", weights, "--depth-model", depth, "--device", "cpu")
    assert run(*words) == 0
    assert not check_data("gaussian", data)
    features = np.fromfile(data / "features" / "001_dinov2.bin", dtype="<f4").reshape(37, 37, 384)
    model = build_dinov2(torch.load(weights, weights_only=True), "weights")
    with torch.no_grad():
        expected = model(torch.from_numpy(normalise(data / "001.jpg")))[0].numpy()
    np.testing.assert_allclose(features, expected, atol=1e-5)
    depths = np.fromfile(data / "features" / "001_depth.bin", dtype="<f4").reshape(256, 256)
    assert depths.min() < 0.1
    assert depths.max() > 0.9
    assert len(np.unique(depths.round(1)[:, [20, 230]])) == 2  # two halves
    (data / "features" / "001_dinov2.bin").write_bytes(b"cut")
    before = (data / "features" / "000_dinov2.bin").stat().st_mtime_ns
    capsys.readouterr()
    assert run(*words) == 0
    assert "1 files were written" in capsys.readouterr().out
    assert not check_data("gaussian", data)
    assert (data / "features" / "000_dinov2.bin").stat().st_mtime_ns == before


def test_without_a_depth_model_it_says_what_is_expected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Base's features have base's name: phase 2 needs no other step."""
    data = write_scenes(tmp_path / "data", 1)
    (data / "features" / "000_depth.bin").unlink()
    assert run("--data", data, "--weights", write_weights(tmp_path / "b.pth", 768), "--device", "cpu") == 0
    assert (data / "features" / "000_dinov2_base.bin").stat().st_size == 4 * 37 * 37 * 768
    assert "1 depths are missing, such as features/000_depth.bin" in capsys.readouterr().out


def test_pictures_are_resized_and_normalised_with_imagenets_figures(tmp_path: Path) -> None:
    Image.new("RGB", (40, 30), (255, 0, 128)).save(tmp_path / "a.png")
    image = normalise(tmp_path / "a.png")
    assert image.shape == (1, 3, 518, 518)
    expected = (np.array([1, 0, 128 / 255]) - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]
    np.testing.assert_allclose(image[0, :, 100, 200], expected, rtol=1e-5)


def test_depths_are_scaled_to_0_and_1() -> None:
    """A flat one has no scale."""
    depth = scale_depth(np.linspace(3, 11, 518 * 518, dtype=np.float32).reshape(518, 518))
    assert depth.shape == (256, 256)
    assert depth.min() < 0.01
    assert depth.max() > 0.99
    assert not scale_depth(np.full((9, 9), 5, dtype=np.float32)).any()


@pytest.mark.parametrize("what", ["registers", "another network", "another width"])
def test_other_weights_are_refused(what: str, tmp_path: Path) -> None:
    """By what is wrong with them."""
    weights = dict(DinoV2(64 if what == "another width" else 384, 1, 5).state_dict())
    if what == "registers":
        weights["register_tokens"] = torch.zeros(1, 4, 384)
    elif what == "another network":
        weights = {"conv.weight": torch.zeros(3)}
    torch.save(weights, tmp_path / "w.pth")
    data = write_scenes(tmp_path / "data", 1)
    assert run("--data", data, "--weights", tmp_path / "w.pth", "--device", "cpu") == 2
    if what != "another width":
        with pytest.raises(BadRequestError, match="no weights of DINOv2"):
            build_dinov2(weights, "w.pth")
