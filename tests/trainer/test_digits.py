"""The digits recipe from the command line, with its defaults: its accuracy, and its files."""

from pathlib import Path

import matplotlib.image
import numpy as np
import onnxruntime
import pytest
import torch

from tests.trainer import harness
from trainer.base.errors import ExportError
from trainer.checkpoints.store import load_checkpoint
from trainer.recipes.digits import SmallResNet, load_split
from trainer.report.export import export_onnx

DefaultRun = tuple[Path, harness.Result]
EPOCHS, STEPS = 12, 264


@pytest.mark.slow
def test_default_run_reaches_97_percent(default_run: DefaultRun) -> None:
    """The best validation accuracy of the default configuration is at least 97%."""
    folder, result = default_run
    assert result.code == 0, result.err
    accuracies = [row["val_accuracy"] for row in harness.read_rows(folder) if "val_accuracy" in row]
    assert max(accuracies) >= 0.97


def test_best_checkpoint_holds_the_weights_of_the_best_epoch(default_run: DefaultRun) -> None:
    """On the held-out images, the best weights reach the best accuracy in metrics.jsonl."""
    folder, _ = default_run
    best = load_checkpoint(harness.best_checkpoint(folder))
    model = SmallResNet(width=24, dropout=0.1).eval()
    model.load_state_dict(best["model"])
    _, (validation_BCHW, labels_B) = load_split()
    with torch.no_grad():
        right = (model(validation_BCHW).argmax(dim=1) == labels_B).float().mean().item()
    rows = [row for row in harness.read_rows(folder) if "val_accuracy" in row]
    top = max(row["val_accuracy"] for row in rows)
    assert right == pytest.approx(top, abs=1e-6)
    assert best["epoch"] == next(row["epoch"] for row in rows if row["val_accuracy"] == top)


def test_console_has_a_banner_a_line_per_epoch_and_a_last_line(default_run: DefaultRun) -> None:
    """Plain lines: what is trained, one line for each epoch with its figures, where the results are."""
    _, result = default_run
    lines = result.out.splitlines()
    assert lines[0].startswith("digits on 1 x cpu")
    assert "batch 64 = 1 x 64" in lines[0]
    epochs = [line for line in lines if "val_loss" in line]
    for epoch, line in enumerate(epochs, start=1):
        assert line.startswith(f"epoch {epoch}/{EPOCHS}  loss ")
        assert all(word in line for word in ("val_loss", "val_accuracy", "%", "samples/s"))
    assert len(epochs) == EPOCHS
    assert lines[-1].startswith("succeeded: 264 steps")
    assert result.err == ""


def test_status_has_the_fields_of_the_contract(default_run: DefaultRun) -> None:
    """status.json has exactly the agreed fields, of the agreed types."""
    folder, _ = default_run
    status = harness.read_status(folder)
    assert set(status) == {"state", "epoch", "epochs", "step", "steps", "metrics", "checkpoint", "updated"}
    expected = {"state": "succeeded", "epoch": EPOCHS, "epochs": EPOCHS, "step": STEPS, "steps": STEPS}
    assert {name: status[name] for name in expected} == expected
    assert set(status["metrics"]) == {"loss", "val_loss", "val_accuracy"}
    assert isinstance(status["updated"], float)
    assert (folder / "checkpoints" / status["checkpoint"]).is_file()


def test_metrics_rows_have_their_fields(default_run: DefaultRun) -> None:
    """A train row every ten steps and a validation row an epoch, in order."""
    folder, _ = default_run
    rows = harness.read_rows(folder)
    train = [row for row in rows if "val_loss" not in row]
    validation = [row for row in rows if "val_loss" in row]
    assert [row["step"] for row in train] == list(range(10, STEPS, 10))
    assert [row["epoch"] for row in validation] == list(range(1, EPOCHS + 1))
    speed = {"samples_per_second", "data_wait", "memory_gib"}
    assert all(set(row) == {"step", "epoch", "loss", "lr"} | speed for row in train)
    assert all(0 <= row["data_wait"] <= 1 and 0 < row["memory_gib"] < 1024 for row in train)
    assert all(set(row) == {"step", "epoch", "val_loss", "val_accuracy"} for row in validation)


def test_only_the_newest_three_checkpoints_and_the_best_are_kept(default_run: DefaultRun) -> None:
    """One for each of the last three epochs, the best, and no temporary file."""
    folder, _ = default_run
    names = sorted(path.name for path in (folder / "checkpoints").iterdir())
    best = harness.best_checkpoint(folder).name
    assert names == [best, "step-00000220.safetensors", "step-00000242.safetensors", "step-00000264.safetensors"]


def test_onnx_model_agrees_with_the_best_weights(default_run: DefaultRun) -> None:
    """Onnxruntime on model.onnx agrees with torch on the best weights, for batches of 1, 5 and all 360 images."""
    folder, result = default_run
    model = SmallResNet(width=24, dropout=0.1).eval()
    model.load_state_dict(load_checkpoint(harness.best_checkpoint(folder))["model"])
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), providers=["CPUExecutionProvider"])
    _, (validation_BCHW, _) = load_split()
    for size in (1, 5, 360):
        images_BCHW = validation_BCHW[:size]
        with torch.no_grad():
            expected = model(images_BCHW).numpy()
        found = np.asarray(session.run(None, {"input": images_BCHW.numpy()})[0])
        assert np.abs(found - expected).max() < 1e-4
    assert "largest difference from torch" in result.out


def test_model_whose_export_gives_other_outputs_is_not_written(tmp_path: Path) -> None:
    """A model that is random even in inference can't agree with its export: refused, no file left."""

    class Noisy(torch.nn.Module):
        def forward(self, values_BC: torch.Tensor) -> torch.Tensor:
            return values_BC + torch.rand_like(values_BC)

    with pytest.raises(ExportError, match="gives other outputs"):
        export_onnx(Noisy(), (torch.zeros(4, 3),), tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []


def test_curves_are_a_picture_that_is_not_empty(default_run: DefaultRun) -> None:
    """curves.png can be decoded, is large enough to read, and has the colours of its curves."""
    folder, _ = default_run
    pixels = matplotlib.image.imread(folder / "curves.png")
    height, width, _ = pixels.shape
    assert min(height, width) > 800
    for colour in ((0x1F, 0x5F, 0xA8), (0xD9, 0x73, 0x1A), (0x2A, 0x7F, 0x4F)):
        distance = np.abs(pixels[:, :, :3] - np.array(colour) / 255).max(axis=2)
        assert (distance < 0.02).sum() > 300


@pytest.mark.slow
def test_two_processes_reach_97_percent_and_write_once(tmp_path: Path) -> None:
    """A torchrun that is started anew, with two CPU processes: the global batch is split, one prints and writes.

    Six epochs are enough, and reach 98%.
    """
    folder = tmp_path / "output"
    result = harness.run(folder, "onnx=false", "epochs=6", processes=2, anew=True)
    assert result.code == 0, result.err
    assert "digits on 2 x cpu" in result.out
    assert "batch 64 = 2 x 32" in result.out
    assert result.out.count("epoch 1/6") == 1
    rows = harness.read_rows(folder)
    assert [row["epoch"] for row in rows if "val_loss" in row] == list(range(1, 7))
    assert max(row.get("val_accuracy", 0) for row in rows) >= 0.97
    assert harness.read_status(folder)["state"] == "succeeded"
