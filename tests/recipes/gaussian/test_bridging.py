"""Checkpoints of fresnel's trainer: they load, render as there, and are written back.

Layout: train_gaussian_decoder.py, `save_checkpoint`: epoch, model_state_dict, optimizer_state_dict, losses, config.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from tests.recipes.gaussian.scenes import WIDTH, train, write_scenes
from tests.trainer import harness
from trainer.base.signals import StopFlag
from trainer.checkpoints.loading import load
from trainer.cli import main
from trainer.group.distributed import ALONE


class TheirMlp(nn.Module):
    """Fresnel's per-patch MLP by its layers, and the offset of the depth beside it."""

    def __init__(self, width: int, per_patch: int) -> None:
        super().__init__()
        sizes = [width, 512, 512, 256, 128]
        layers: list[nn.Module] = []
        for before, after in pairwise(sizes):
            layers += [nn.Linear(before, after), nn.ReLU(inplace=True), nn.Dropout(0.1)]
        self.mlp = nn.ModuleDict({"net": nn.Sequential(*layers, nn.Linear(sizes[-1], 16 * per_patch))})
        self.depth_offset = nn.Parameter(torch.tensor(-1.75))


def write_checkpoint(path: Path, *, width: int = WIDTH, per_patch: int = 1, prefix: str = "") -> dict[str, Any]:
    """Write `decoder_exp2_epoch7.pt` as fresnel's trainer does, and return its weights."""
    torch.manual_seed(1)
    model = TheirMlp(width, per_patch)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    torch.autograd.backward(model.mlp["net"](torch.randn(5, width)).sum())
    optimizer.step()
    content = {
        "epoch": 7,
        "model_state_dict": {prefix + name: tensor for name, tensor in model.state_dict().items()},
        "optimizer_state_dict": optimizer.state_dict(),
        "losses": {"total": 0.5, "rgb": 0.1},
        "config": {
            "experiment": 2,
            "lr": 1e-4,
            "pose_range_elevation": (-30, 45),
            "max_images": None,
            "device": "cuda",
        },
    }
    torch.save(content, path)
    return model.state_dict()


@pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod."])
def test_their_checkpoint_is_what_a_run_starts_from(tmp_path: Path, prefix: str) -> None:
    """A rate of almost nothing leaves the weights as they were read."""
    theirs = write_checkpoint(tmp_path / "decoder_exp2_epoch7.pt", prefix=prefix)
    data = write_scenes(tmp_path / "data", 6)
    settings = ("max_steps=1", "batch_size=4", "optimizer.learning_rate=1e-12", "model.upright=false")
    output = tmp_path / "output"
    flags = ("--init", tmp_path / "decoder_exp2_epoch7.pt")
    assert train(output, data, *settings, "data.held_out=0.2", flags=flags) == 0
    ours = load(harness.best_checkpoint(output), ALONE)["model"]
    assert ours.keys() == theirs.keys()
    for name, weight in theirs.items():
        torch.testing.assert_close(ours[name], weight, atol=1e-9, rtol=0)


def test_remap_writes_back_their_weights(tmp_path: Path) -> None:
    """From their checkpoint, and from the weights of a run of ours: the same names in both."""
    theirs = write_checkpoint(tmp_path / "decoder_exp2_epoch7.pt", prefix="module.")
    assert remap(tmp_path / "decoder_exp2_epoch7.pt", tmp_path / "theirs.safetensors") == 0
    written = load_file(tmp_path / "theirs.safetensors")
    assert {name.removeprefix("module.") for name in written} == set(theirs)
    data, output = write_scenes(tmp_path / "data", 6), tmp_path / "output"
    flags = ("--init", tmp_path / "theirs.safetensors")
    still = ("max_steps=1", "batch_size=4", "optimizer.learning_rate=1e-12", "data.held_out=0.2")
    assert train(output, data, *still, flags=flags) == 0
    assert remap(output / "model.safetensors", tmp_path / "back.safetensors") == 0
    back = load_file(tmp_path / "back.safetensors")
    theirs_again = TheirMlp(WIDTH, 1)
    theirs_again.load_state_dict(back)  # strict: fresnel's own loading finds each of its names
    for name, weight in theirs.items():
        torch.testing.assert_close(back[name], weight, atol=1e-9, rtol=0)


def test_checkpoint_of_another_width_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Weights for small's features don't fit base's: phase 2 starts afresh."""
    write_checkpoint(tmp_path / "decoder.pt", width=WIDTH + 1)
    data = write_scenes(tmp_path / "data", 6)
    flags = ("--init", tmp_path / "decoder.pt")
    assert train(tmp_path / "output", data, "batch_size=4", "data.held_out=0.2", flags=flags) == 2
    assert "mlp.net.0.weight" in capsys.readouterr().err


def remap(old: Path, new: Path) -> int:
    return main(["remap", str(old), str(new)], environ={}, stop=StopFlag())
