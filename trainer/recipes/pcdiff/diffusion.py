"""The diffusion: noise on the implant's points, and two ways back. The skull's points are given, and never change.

Forward and DDPM: Ho et al. 2020 (arXiv:2006.11239), sections 2 and 3. DDIM: Song et al. 2021 (arXiv:2010.02502).
"""

from collections.abc import Callable, Sequence

import torch

from trainer.recipes.pcdiff.settings import DiffusionSettings, SamplingSettings

# Shape legend: B batch, I points of the implant, S of the skull, T steps.
Predict = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""(skull_BS3, noisy_BI3, step_B) -> noise_BI3."""


class Diffusion:
    """T steps, with variances that grow linearly; `kept_T` is the share of the implant's variance that is left."""

    def __init__(self, settings: DiffusionSettings) -> None:
        self.steps = settings.steps
        self.beta_T = torch.linspace(settings.first_beta, settings.last_beta, settings.steps, dtype=torch.float64)
        self.kept_T = torch.cumprod(1 - self.beta_T, 0)

    def add_noise(self, implant: torch.Tensor, step: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        """Return the implant's points after a step (from 0), equation 4: (I, 3) and (), or (B, I, 3) and (B,)."""
        kept = self.kept_T[step][..., None, None]
        noisy: torch.Tensor = kept.sqrt().to(implant.dtype) * implant + (1 - kept).sqrt().to(implant.dtype) * noise
        return noisy

    def predict_clean(self, noisy: torch.Tensor, noise: torch.Tensor, step: int) -> torch.Tensor:
        """Solve equation 4 for the implant."""
        kept = float(self.kept_T[step])
        clean: torch.Tensor = (noisy - (1 - kept) ** 0.5 * noise) / kept**0.5
        return clean

    def find_posterior(self, clean: torch.Tensor, noisy: torch.Tensor, step: int) -> tuple[torch.Tensor, float]:
        """Return mean and variance of the step before, given both ends: equations 6 and 7."""
        beta, kept = float(self.beta_T[step]), float(self.kept_T[step])
        before = float(self.kept_T[step - 1]) if step else 1.0
        of_clean = before**0.5 * beta / (1 - kept)
        of_noisy = (1 - beta) ** 0.5 * (1 - before) / (1 - kept)
        return of_clean * clean + of_noisy * noisy, beta * (1 - before) / (1 - kept)

    def step_back(self, clean: torch.Tensor, noisy: torch.Tensor, step: int, fresh: torch.Tensor) -> torch.Tensor:
        """Draw the step before (DDPM), with the posterior's variance; step 0 gets no noise."""
        mean, variance = self.find_posterior(clean, noisy, step)
        before: torch.Tensor = mean + variance**0.5 * fresh
        return before

    def jump_back(
        self, clean: torch.Tensor, noisy: torch.Tensor, step: int, to: int | None, fresh: torch.Tensor, *, eta: float
    ) -> torch.Tensor:
        """Return an earlier step, or the implant where `to` is None (DDIM): equations 12 and 16."""
        kept = float(self.kept_T[step])
        after = 1.0 if to is None else float(self.kept_T[to])
        noise = (noisy - kept**0.5 * clean) / (1 - kept) ** 0.5
        deviation = eta * ((1 - after) / (1 - kept) * (1 - kept / after)) ** 0.5
        direction = max(0.0, 1 - after - deviation**2) ** 0.5
        earlier: torch.Tensor = after**0.5 * clean + direction * noise + deviation * fresh
        return earlier

    @torch.no_grad()
    def sample(
        self, predict: Predict, skull_BS3: torch.Tensor, points: int, settings: SamplingSettings, seeds: Sequence[int]
    ) -> torch.Tensor:
        """Make an implant of so many points for each skull: (B, I, 3).

        Args:
            predict: the network.
            skull_BS3: normalised skulls.
            points: I.
            settings: method, steps, eta and limit.
            seeds: one for each skull. An implant depends on its seed and skull, not on the others of the batch.
        """
        noises = [torch.Generator().manual_seed(seed) for seed in seeds]
        noisy_BI3 = _draw(noises, points).to(skull_BS3)
        times = list(range(self.steps)) if settings.method == "ddpm" else self._choose_steps(settings.steps)
        for number in range(len(times) - 1, -1, -1):
            step = times[number]
            step_B = torch.full((len(skull_BS3),), step, device=skull_BS3.device)
            noise_BI3 = predict(skull_BS3, noisy_BI3, step_B).to(noisy_BI3.dtype)
            clean_BI3 = self.predict_clean(noisy_BI3, noise_BI3, step)
            if settings.limit:
                clean_BI3 = clean_BI3.clamp(-settings.limit, settings.limit)
            fresh_BI3 = _draw(noises, points).to(noisy_BI3)
            if settings.method == "ddpm":
                noisy_BI3 = self.step_back(clean_BI3, noisy_BI3, step, fresh_BI3)
            else:
                to = times[number - 1] if number else None
                noisy_BI3 = self.jump_back(clean_BI3, noisy_BI3, step, to, fresh_BI3, eta=settings.eta)
        return noisy_BI3

    def _choose_steps(self, count: int) -> list[int]:
        """Choose DDIM's steps, equally far from each other, 0 and the last one among them."""
        if count == 1:
            return [self.steps - 1]
        chosen = torch.linspace(0, self.steps - 1, min(count, self.steps), dtype=torch.float64).round()
        return sorted({int(step) for step in chosen.tolist()})


def _draw(generators: Sequence[torch.Generator], points: int) -> torch.Tensor:
    return torch.stack([torch.randn(points, 3, generator=generator) for generator in generators])
