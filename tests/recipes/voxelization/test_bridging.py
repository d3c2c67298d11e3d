"""Checkpoints of pfriedri/pcdiff-implant's voxelization: they load, go on, and are written back.

Layout: voxelization/train.py, which saves `epoch`, `it`, `loss_val_best` (NumPy's float64 after the first validation)
and `state_dict` into model.pt and model_best.pt, and no state of the optimizer.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tests.recipes.voxelization.training import train
from tests.trainer import harness
from trainer.base.signals import StopFlag
from trainer.checkpoints.store import load_checkpoint
from trainer.cli import main

Shapes = dict[str, tuple[int, ...]]
STILL = ("optimizer.learning_rate=1e-12", "hausdorff=false")


def list_weights(width: int, blocks: int, levels: int, offsets: int) -> Shapes:
    """List names and shapes of `Encode2Points` with one width everywhere, as its modules declare them."""
    encoder = {f"encoder.{name}": shape for name, shape in _list_encoder(width, blocks, levels)}
    normal = {f"decoder_normal.{name}": shape for name, shape in _list_decoder(width, blocks, 1)}
    offset = {f"decoder_offset.{name}": shape for name, shape in _list_decoder(width, blocks, offsets)}
    return encoder | normal | offset


def _linear(name: str, before: int, after: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield from ((f"{name}.weight", (after, before)), (f"{name}.bias", (after,)))


def _list_encoder(width: int, blocks: int, levels: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    yield from _linear("fc_pos", 3, 2 * width)
    for number in range(blocks):
        yield from _linear(f"blocks.{number}.fc_0", 2 * width, width)
        yield from _linear(f"blocks.{number}.fc_1", width, width)
        yield f"blocks.{number}.shortcut.weight", (width, 2 * width)
    yield from _linear("fc_c", width, width)
    widths = [width * 2**level for level in range(levels)]
    before = width
    for level, after in enumerate(widths):
        middle = max(before, after // 2)
        yield from _list_level(f"unet3d.encoders.{level}", before, middle, after)
        before = after
    for number, after in enumerate(reversed(widths[:-1])):
        yield from _list_level(f"unet3d.decoders.{number}", 2 * after + after, after, after)
    yield from (("unet3d.final_conv.weight", (width, width, 1, 1, 1)), ("unet3d.final_conv.bias", (width,)))


def _list_level(name: str, before: int, middle: int, after: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    for number, (inner, outer) in enumerate(((before, middle), (middle, after)), start=1):
        conv = f"{name}.basic_module.SingleConv{number}"
        yield from ((f"{conv}.groupnorm.{part}", (inner,)) for part in ("weight", "bias"))
        yield f"{conv}.conv.weight", (outer, inner, 3, 3, 3)


def _list_decoder(width: int, blocks: int, outputs: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    for number in range(blocks):
        yield from _linear(f"fc_c.{number}", width, width)
        yield from _linear(f"blocks.{number}.fc_0", width, width)
        yield from _linear(f"blocks.{number}.fc_1", width, width)
    yield from _linear("fc_p", 3, width)
    yield from _linear("fc_out", width, 3 * outputs)


def write_theirs(path: Path, *, prefix: str = "", epoch: int = 640) -> dict[str, torch.Tensor]:
    """Write what the original saves, for the network of these tests, and return its weights."""
    generator = torch.Generator().manual_seed(0)
    shapes = list_weights(8, 2, 2, 2)
    weights = {name: 0.2 * torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    content = {"epoch": epoch, "it": 12_345, "loss_val_best": np.mean([0.25, 0.5])}
    content["state_dict"] = {prefix + name: weight for name, weight in weights.items()}
    torch.save(content, path)
    return weights


def test_list_is_that_of_the_original() -> None:
    """With train_skullbreak.yaml it has the original's 1,085,272 weights."""
    assert sum(int(np.prod(shape)) for shape in list_weights(32, 5, 3, 7).values()) == 1_085_272


@pytest.mark.parametrize("name", ["model.pt", "model_best.pt"])
@pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod."])
def test_their_weights_start_a_run(made: Path, tmp_path: Path, name: str, prefix: str) -> None:
    """Under DataParallel or compiled as well; a rate of almost nothing leaves them as they were read."""
    theirs = write_theirs(tmp_path / name, prefix=prefix)
    assert train(made, tmp_path / "output", "max_steps=1", *STILL, flags=("--init", str(tmp_path / name))) == 0
    ours = load_file(tmp_path / "output" / "model.safetensors")
    assert ours.keys() == theirs.keys()
    assert all(torch.allclose(ours[name], weight, atol=1e-9) for name, weight in theirs.items())


def test_their_run_goes_on_after_its_last_epoch(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Epoch 640 is the index of the last one that is done. Its optimizer is new, because it was never saved."""
    theirs = write_theirs(tmp_path / "model.pt")
    settings = ("epochs=642", "checkpoint.every_epochs=5", *STILL)
    assert train(made, tmp_path / "output", *settings, flags=("--from", str(tmp_path / "model.pt"))) == 0
    assert "641 epochs are done" in capsys.readouterr().out
    rows = [row for row in harness.read_rows(tmp_path / "output") if "lr" in row]
    assert {row["epoch"] for row in rows} == {642}
    state = load_checkpoint(harness.newest_checkpoint(tmp_path / "output"))["model"]
    assert all(torch.allclose(state[name], weight, atol=1e-9) for name, weight in theirs.items())


def test_checkpoint_that_does_not_load_ends_the_run(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """W1's bare `except` would have started afresh, silently."""
    write_theirs(tmp_path / "model.pt")
    (tmp_path / "model.pt").write_bytes((tmp_path / "model.pt").read_bytes()[:5000])
    assert train(made, tmp_path / "output", flags=("--init", str(tmp_path / "model.pt"))) == 2
    assert "model.pt does not load" in capsys.readouterr().err


def test_remap_writes_back_what_the_original_reads(made: Path, tmp_path: Path) -> None:
    """Weights of a run of ours have the original's names and shapes; `state_dict` around them makes a model.pt."""
    assert train(made, tmp_path / "output", "max_steps=1", "hausdorff=false") == 0
    step = harness.newest_checkpoint(tmp_path / "output")
    assert main(["remap", str(step), str(tmp_path / "back.safetensors")], environ={}, stop=StopFlag()) == 0
    weights = load_file(tmp_path / "back.safetensors")
    assert {name: tuple(weight.shape) for name, weight in weights.items()} == list_weights(8, 2, 2, 2)
    torch.save({"state_dict": weights}, tmp_path / "model.pt")
    assert train(made, tmp_path / "again", "max_steps=1", *STILL, flags=("--init", str(tmp_path / "model.pt"))) == 0
