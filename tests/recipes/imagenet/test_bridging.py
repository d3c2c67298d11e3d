"""Checkpoints of the original project and torchvision's weights: read by --init and --from, written back by remap.

The original (github.com/abhi1021/resnet50-imagenet-1k, utils/checkpoints.py) wraps torchvision's network as `model`,
and DDP puts `module.` in front: its best_model.pth and training_state_epoch<N>.pth are made here with the same keys.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tests.recipes.imagenet.runs import train
from trainer.checkpoints.remap import find_weights, read_content, remap
from trainer.recipes.imagenet.network import resnet
from trainer.start.fit import fit_weights

State = Mapping[str, torch.Tensor]


def make_weights() -> dict[str, torch.Tensor]:
    """Make the weights of a ResNet-18 for six classes, with running statistics of their own."""
    torch.manual_seed(5)
    weights = resnet(18, 6).state_dict()
    return {name: torch.rand_like(tensor) if "running" in name else tensor for name, tensor in weights.items()}


def make_best(weights: State, prefix: str) -> dict[str, Any]:
    """Nest weights as best_model.pth does."""
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    return {
        "epoch": 90,
        "model_state_dict": {f"{prefix}{name}": tensor for name, tensor in weights.items()},
        "optimizer_state_dict": optimizer.state_dict(),
        "train_accuracy": 60.8,
        "test_accuracy": 73.84,
        "train_loss": 2.87,
        "test_loss": 1.23,
        "timestamp": "2025-11-01T10:00:00",
        "config": {"model": "resnet50-pytorch", "mixup_alpha": 0.2},
    }


def make_training_state(weights: State, prefix: str) -> dict[str, Any]:
    """Nest weights as training_state_epoch90.pth does, with random states and histories."""
    return {
        **make_best(weights, prefix),
        "batch_idx": None,
        "scheduler_state_dict": {"T_0": 30, "T_i": 30, "T_cur": 0, "last_epoch": 90},
        "rng_state": {
            "torch": torch.get_rng_state(),
            "numpy": np.random.get_state(),
            "cuda": [torch.get_rng_state()],
        },
        "scaler_state_dict": {"scale": 65536.0, "growth_factor": 2.0, "_growth_tracker": 7},
        "metrics_tracker": {"train_losses": [6.18, 3.1], "best_test_acc": 73.84, "best_epoch": 90},
    }


def make_torchvision(weights: State, prefix: str) -> dict[str, Any]:
    """A file such as resnet50-0676ba61.pth is the state dict itself."""
    return {f"{prefix}{name}": tensor for name, tensor in weights.items()}


LAYOUTS = [
    (make_best, "module.model."),
    (make_best, "model."),
    (make_training_state, "module.model."),
    (make_torchvision, ""),
]


@pytest.fixture(params=LAYOUTS, ids=["best on several GPUs", "best", "training state", "torchvision"])
def foreign(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    make, prefix = request.param
    path = tmp_path / "original.pth"
    torch.save(make(make_weights(), prefix), path)
    return path


def test_weights_fit_by_name_and_shape(foreign: Path) -> None:
    weights = make_weights()
    fit = fit_weights(find_weights(read_content(foreign)).weights, resnet(18, 6).state_dict())
    assert fit.is_whole, fit.describe()
    assert all(torch.equal(fit.fitting[name], tensor) for name, tensor in weights.items())


def test_remap_writes_what_init_reads_again(foreign: Path, tmp_path: Path) -> None:
    """Only DDP's prefix is gone: the original's own class loads it, too."""
    remap(foreign, tmp_path / "new.safetensors")
    written, weights = load_file(tmp_path / "new.safetensors"), make_weights()
    bare = {name.removeprefix("model."): tensor for name, tensor in written.items()}
    assert bare.keys() == weights.keys()
    assert all(torch.equal(bare[name], tensor) for name, tensor in weights.items())
    assert fit_weights(written, resnet(18, 6).state_dict()).is_whole


def test_run_starts_from_the_originals_weights(
    folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A rate of almost 0 leaves the weights as they were read."""
    original = tmp_path / "best_model.pth"
    torch.save(make_best(make_weights(), "module.model."), original)
    still = ("max_steps=1", "optimizer.learning_rate=1e-30", "optimizer.weight_decay=0")
    assert train(tmp_path / "output", folders, *still, flags=["--init", original]) == 0
    assert "started from best_model.pth: 122 tensors loaded" in capsys.readouterr().out
    ours, weights = load_file(tmp_path / "output" / "model.safetensors"), make_weights()
    assert ours.keys() == weights.keys()
    assert all(torch.equal(ours[name], weights[name]) for name in weights if "conv" in name or "fc" in name)


def test_run_goes_on_from_the_originals_training_state(
    folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its epochs count from 1, which no file says: --epochs-done does."""
    original = tmp_path / "training_state_epoch90.pth"
    torch.save(make_training_state(make_weights(), "module.model."), original)
    assert train(tmp_path / "output", folders, "epochs=91", flags=["--from", original, "--epochs-done", "90"]) == 0
    out = capsys.readouterr().out
    assert "goes on from training_state_epoch90.pth, another trainer's: epoch 91 of 91" in out
