from pathlib import Path

import pytest
import torch
from PIL import Image

from tests.trainer import harness
from trainer.base.signals import StopFlag
from trainer.cli import main
from trainer.recipes.diffusion import Denoiser, Diffusion

SMALL = (
    "diffusion.steps=50",
    "diffusion.sample_steps=5",
    "model.width=16",
    "model.blocks=2",
    "optimizer.learning_rate=0.004",
    "schedule.warmup_steps=0",
    "ema_decay=0.8",
    "samples.every_epochs=2",
    "onnx=false",
    "curves=false",
)


def test_noise_grows_as_in_the_closed_form() -> None:
    process = Diffusion(1000)
    kept = 1.0
    for step in range(1000):
        kept *= 1 - (1e-4 + (0.02 - 1e-4) * step / 999)
        if step in (0, 99, 499, 999):
            assert float(process.kept_T[step]) == pytest.approx(kept, rel=1e-4)
    noise = torch.randn(20_000, 1, 1, 1, generator=torch.Generator().manual_seed(0))
    noisy = process.noisy(torch.full_like(noise, 0.5), torch.full((20_000,), 300), noise)
    assert float(noisy.var()) == pytest.approx(1 - float(process.kept_T[300]), rel=0.05)
    assert float(noisy.mean()) == pytest.approx(0.5 * float(process.kept_T[300].sqrt()), abs=0.03)


@pytest.mark.parametrize("steps", [20, 100, 1000])
def test_the_last_step_is_noise_for_any_number_of_steps(steps: int) -> None:
    assert float(Diffusion(steps).kept_T[-1]) < 1e-3


@pytest.mark.parametrize("eta", [0.0, 1.0])
def test_samples_are_pictures_in_range_and_always_the_same(eta: float) -> None:
    process, model = Diffusion(50), Denoiser(8, 1)
    images_BCHW = process.sample(model, 3, steps=10, eta=eta)
    assert images_BCHW.shape == (3, 1, 8, 8)
    assert float(images_BCHW.abs().max()) <= 1
    assert torch.equal(images_BCHW, process.sample(model, 3, steps=10, eta=eta))


def test_learns_draws_digits_and_resumes(tmp_path: Path) -> None:
    whole, halves = tmp_path / "whole", tmp_path / "halves"
    assert train(whole, "epochs=4") == 0
    losses = [row["val_loss"] for row in harness.read_rows(whole) if "val_loss" in row]
    assert losses[-1] < 0.6
    with Image.open(whole / "samples" / "epoch-000004" / "digits.png") as picture:
        assert picture.size == (512, 512)
    assert train(halves, "epochs=4", stop=harness.StopAtLook(40)) == 0
    assert harness.read_status(halves)["state"] == "stopped"
    assert train(halves, "epochs=4") == 0
    harness.assert_same_run(halves, whole)


def train(output: Path, *settings: str, stop: StopFlag | None = None) -> int:
    argv = ["diffusion", *harness.settings_args([*SMALL, *settings]), "--output-dir", str(output)]
    return main(argv, environ={}, stop=stop or StopFlag())
