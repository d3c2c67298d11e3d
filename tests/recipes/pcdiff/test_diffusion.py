"""The diffusion, against closed forms in float64."""

import math
from typing import Literal

import numpy as np
import pytest
import torch

from trainer.recipes.pcdiff.diffusion import Diffusion
from trainer.recipes.pcdiff.settings import DiffusionSettings, SamplingSettings

# Shape legend: B batch, S points of the skull, I of the implant.
PROCESS = Diffusion(DiffusionSettings())
MEAN, DEVIATION = 1.2, 0.3
BETA = 1e-4 + (0.02 - 1e-4) * np.arange(1000) / 999
KEPT = np.exp(np.cumsum(np.log1p(-BETA)))


def know_gaussian(_skull: torch.Tensor, noisy_BI3: torch.Tensor, step_B: torch.Tensor) -> torch.Tensor:
    """The best prediction of the noise, if all coordinates come from N(MEAN, DEVIATION^2)."""
    kept = float(KEPT[int(step_B[0])])
    return math.sqrt(1 - kept) * (noisy_BI3 - math.sqrt(kept) * MEAN) / (kept * DEVIATION**2 + 1 - kept)


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_the_schedule_is_the_closed_form() -> None:
    assert PROCESS.beta_T.numpy() == pytest.approx(BETA, rel=1e-12)
    assert PROCESS.kept_T.numpy() == pytest.approx(KEPT, rel=1e-10)
    assert float(PROCESS.kept_T[999]) == pytest.approx(4.0358e-5, rel=1e-4)  # Ho et al. 2020: nearly nothing is left


def test_noise_is_added_by_the_closed_form_and_taken_away_again() -> None:
    clean, fresh, step = noise(4, 5, 3), noise(4, 5, 3, seed=1), torch.tensor([0, 1, 500, 999])
    noisy = PROCESS.add_noise(clean, step, fresh)
    kept = KEPT[step.numpy()][:, None, None]
    assert noisy.numpy() == pytest.approx(np.sqrt(kept) * clean.numpy() + np.sqrt(1 - kept) * fresh.numpy(), rel=1e-9)
    for number, each in enumerate(step.tolist()):
        one = PROCESS.add_noise(clean[number], step[number], fresh[number])
        assert torch.equal(one, noisy[number])
        assert PROCESS.predict_clean(one, fresh[number], each).numpy() == pytest.approx(clean[number].numpy(), abs=1e-9)


@pytest.mark.parametrize("step", [1, 250, 999])
def test_the_posterior_is_the_product_of_two_gaussians(step: int) -> None:
    """q(x before | x now, x clean): precisions add up, means are weighted by them."""
    clean, noisy = noise(20, 3), noise(20, 3, seed=1)
    forward, prior = (1 - BETA[step]) / BETA[step], 1 / (1 - KEPT[step - 1])
    from_noisy, from_clean = noisy.numpy() / np.sqrt(1 - BETA[step]), clean.numpy() * np.sqrt(KEPT[step - 1])
    mean, variance = PROCESS.find_posterior(clean, noisy, step)
    assert variance == pytest.approx(1 / (forward + prior), rel=1e-9)
    expected = (forward * from_noisy + prior * from_clean) / (forward + prior)
    assert mean.numpy() == pytest.approx(expected, abs=1e-9)


def test_the_first_step_ends_at_the_implant_without_noise() -> None:
    clean, noisy = noise(20, 3), noise(20, 3, seed=1)
    assert PROCESS.step_back(clean, noisy, 0, noise(20, 3, seed=2)).numpy() == pytest.approx(clean.numpy(), abs=1e-9)
    assert torch.equal(PROCESS.jump_back(clean, noisy, 0, None, noisy, eta=0.0), clean)


def test_ddim_without_noise_is_the_formula() -> None:
    """Song et al. 2021, equation 12 with sigma 0: the same noise, at another level."""
    clean, fresh = noise(20, 3), noise(20, 3, seed=1)
    noisy = np.sqrt(KEPT[700]) * clean + np.sqrt(1 - KEPT[700]) * fresh
    jumped = PROCESS.jump_back(clean, noisy, 700, 300, noise(20, 3, seed=2), eta=0.0)
    expected = np.sqrt(KEPT[300]) * clean + np.sqrt(1 - KEPT[300]) * fresh
    assert jumped.numpy() == pytest.approx(expected.numpy(), abs=1e-9)


@pytest.mark.parametrize("step", [1, 400, 999])
def test_ddim_with_all_noise_is_ddpm(step: int) -> None:
    """Song et al. 2021, section 4.1: eta 1 is a DDPM, from step to step."""
    clean, noisy, fresh = noise(20, 3), noise(20, 3, seed=1), noise(20, 3, seed=2)
    jumped = PROCESS.jump_back(clean, noisy, step, step - 1, fresh, eta=1.0)
    assert jumped.numpy() == pytest.approx(PROCESS.step_back(clean, noisy, step, fresh).numpy(), abs=1e-9)


@pytest.mark.parametrize(("method", "steps", "eta"), [("ddpm", 1000, 1.0), ("ddim", 500, 0.0), ("ddim", 100, 1.0)])
def test_with_a_perfect_predictor_samples_have_the_data_statistics(
    method: Literal["ddpm", "ddim"], steps: int, eta: float
) -> None:
    """Exactly those that so many steps lead to, and with many steps those of the data."""
    settings = SamplingSettings(method=method, steps=steps, eta=eta)
    made = PROCESS.sample(know_gaussian, torch.zeros(1, 2, 3), 10_000, settings, [7])
    assert made.shape == (1, 10_000, 3)
    assert float(made.mean()) == pytest.approx(MEAN, abs=0.01)
    assert float(made.std()) == pytest.approx(predict_deviation(steps, eta), rel=0.015)
    if steps >= 500:
        assert float(made.std()) == pytest.approx(DEVIATION, rel=0.02)
    coordinates = (made.flatten().double().numpy() - MEAN) / DEVIATION
    coordinates /= coordinates.std()
    assert np.mean(coordinates**4) == pytest.approx(3, rel=0.1), "a Gaussian's fourth moment"


def predict_deviation(steps: int, eta: float) -> float:
    """Compute the samples' deviation: every step is linear, so variances follow from its slope and its noise."""
    chosen = KEPT[np.round(np.linspace(0, 999, steps)).astype(int)[::-1]]
    variance = 1.0
    for kept, after in zip(chosen, [*chosen[1:], 1.0], strict=True):
        of_noise = math.sqrt(1 - kept) / (kept * DEVIATION**2 + 1 - kept)
        of_clean = (1 - math.sqrt(1 - kept) * of_noise) / math.sqrt(kept)
        fresh = eta**2 * (1 - after) / (1 - kept) * (1 - kept / after)
        slope = math.sqrt(after) * of_clean + math.sqrt(1 - after - fresh) * of_noise
        variance = slope**2 * variance + fresh
    return math.sqrt(variance)


def test_ddim_maps_noise_by_the_product_of_its_steps() -> None:
    """Every step is linear here, so the samples can be computed from the noise by hand."""
    settings = SamplingSettings(method="ddim", steps=20)
    start = torch.randn(50, 3, generator=torch.Generator().manual_seed(3))
    made = PROCESS.sample(know_gaussian, torch.zeros(1, 2, 3), 50, settings, [3])
    value = start.double().numpy()
    steps = np.round(np.linspace(0, 999, 20)).astype(int)[::-1]
    for step, after in zip(KEPT[steps], [*KEPT[steps[1:]], 1.0], strict=True):
        epsilon = math.sqrt(1 - step) * (value - math.sqrt(step) * MEAN) / (step * DEVIATION**2 + 1 - step)
        clean = (value - math.sqrt(1 - step) * epsilon) / math.sqrt(step)
        value = math.sqrt(after) * clean + math.sqrt(1 - after) * epsilon
    assert made[0].numpy() == pytest.approx(value, abs=1e-4)


@pytest.mark.parametrize("method", ["ddpm", "ddim"])
def test_the_network_always_sees_the_same_skull_and_steps_that_go_down_to_0(method: str) -> None:
    skull_BS3, seen = noise(2, 6, 3).float(), []

    def predict(given_BS3: torch.Tensor, noisy_BI3: torch.Tensor, step_B: torch.Tensor) -> torch.Tensor:
        assert torch.equal(given_BS3, skull_BS3)
        seen.append(step_B.tolist())
        return noisy_BI3

    settings = SamplingSettings(method="ddpm" if method == "ddpm" else "ddim", steps=50)
    before = skull_BS3.clone()
    PROCESS.sample(predict, skull_BS3, 4, settings, [0, 1])
    assert torch.equal(skull_BS3, before)
    steps = [step for step, _ in seen]
    assert all(one == two for one, two in seen)
    assert (steps[0], steps[-1], len(steps)) == (999, 0, 1000 if method == "ddpm" else 50)
    assert steps == sorted(set(steps), reverse=True)


def test_one_step_of_ddim_starts_at_the_noise() -> None:
    seen: list[int] = []

    def predict(_skull: torch.Tensor, noisy_BI3: torch.Tensor, step_B: torch.Tensor) -> torch.Tensor:
        seen.append(int(step_B[0]))
        return noisy_BI3

    PROCESS.sample(predict, torch.zeros(1, 2, 3), 4, SamplingSettings(steps=1), [0])
    assert seen == [999]


@pytest.mark.parametrize("eta", [0.0, 1.0])
def test_an_implant_depends_on_its_seed_but_not_on_its_batch(eta: float) -> None:
    settings = SamplingSettings(steps=5, eta=eta)
    several = PROCESS.sample(know_gaussian, torch.zeros(3, 2, 3), 8, settings, [5, 6, 7])
    alone = PROCESS.sample(know_gaussian, torch.zeros(1, 2, 3), 8, settings, [6])
    assert torch.equal(several[1], alone[0])
    assert not torch.equal(several[0], several[1])


def test_a_limit_keeps_implants_inside() -> None:
    def overshoot(_skull: torch.Tensor, noisy_BI3: torch.Tensor, _step: torch.Tensor) -> torch.Tensor:
        return -9 * torch.ones_like(noisy_BI3)

    free = PROCESS.sample(overshoot, torch.zeros(1, 2, 3), 8, SamplingSettings(steps=10), [0])
    kept = PROCESS.sample(overshoot, torch.zeros(1, 2, 3), 8, SamplingSettings(steps=10, limit=3.5), [0])
    assert float(free.max()) > 100
    assert float(kept.abs().max()) <= 3.5
