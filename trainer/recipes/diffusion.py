"""Handwritten digits out of noise: a denoising diffusion model (DDPM) of 8 x 8 pictures.

Ho et al. 2020 (arXiv:2006.11239); the sampler is Song et al. 2021 (arXiv:2010.02502), with DDPM's as eta=1.
"""

import io
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from PIL import Image
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional

from trainer.api import (
    ArraySource,
    OptimizerSettings,
    Recipe,
    Sample,
    SampleSettings,
    ScheduleSettings,
    Settings,
    Workload,
    setting,
)

# Shape legend: B batch, C channels, H height, W width, T steps of the diffusion, N pictures, E embedding.
HELD_OUT = 360


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffusionSettings:
    """The process between pictures and noise."""

    steps: int = setting(1000, "steps from a picture to noise", minimum=2)
    sample_steps: int = setting(50, "steps back, when pictures are sampled; at most as many", minimum=1)
    eta: float = setting(0.0, "noise on the way back: 0: none (DDIM), 1: DDPM's", minimum=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """The network's size."""

    width: int = setting(64, "channels; a multiple of 8", minimum=8)
    blocks: int = setting(4, "residual blocks", minimum=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class DigitsDiffusionSettings(Settings):
    """All settings of this recipe."""

    diffusion: DiffusionSettings = field(default_factory=DiffusionSettings)
    model: ModelSettings = field(default_factory=ModelSettings)


def recipe() -> Recipe[DigitsDiffusionSettings]:
    """Return the default configuration."""
    return Recipe(
        settings=DigitsDiffusionSettings(
            epochs=200,
            batch_size=64,
            ema_decay=0.995,
            optimizer=OptimizerSettings(learning_rate=0.001, weight_decay=0.0),
            schedule=ScheduleSettings(name="cosine", warmup_steps=100),
            samples=SampleSettings(every_epochs=20),
        ),
        build=build_workload,
    )


def build_workload(settings: DigitsDiffusionSettings) -> Workload:
    """Make the network, the training pictures, and validation pictures whose noise is always the same."""
    process = Diffusion(settings.diffusion.steps)
    images_NCHW = torch.from_numpy(load_digits().images).float()[:, None] / 8 - 1
    # The last pictures are held out, in the order of the data set: the same ones for every seed.
    train_NCHW, held_out_NCHW = images_NCHW[:-HELD_OUT], images_NCHW[-HELD_OUT:]

    def diffuse(sample: Sample, rng: np.random.Generator) -> Sample:
        image_CHW = sample
        step = torch.tensor(int(rng.integers(process.steps)))
        noise_CHW = torch.from_numpy(rng.standard_normal(image_CHW.shape, dtype=np.float32))
        return process.noisy(image_CHW, step, noise_CHW), step, noise_CHW

    steps_N = torch.linspace(0, process.steps - 1, HELD_OUT).long()
    noise_NCHW = torch.randn(held_out_NCHW.shape, generator=torch.Generator().manual_seed(0))
    return Workload(
        model=Denoiser(settings.model.width, settings.model.blocks),
        train_data=ArraySource(train_NCHW, transform=diffuse),
        validation_data=ArraySource(process.noisy(held_out_NCHW, steps_N, noise_NCHW), steps_N, noise_NCHW),
        loss=lambda model, batch: functional.mse_loss(model(batch[0], batch[1]), batch[2]),
        samples=lambda model, _moment: draw(model, process, settings.diffusion),
        export_inputs=(torch.zeros(2, 1, 8, 8), torch.zeros(2, dtype=torch.long)),
        data="scikit-learn's digits, scaled to [-1, 1]",
    )


def draw(model: nn.Module, process: "Diffusion", settings: DiffusionSettings) -> Mapping[str, bytes]:
    """Sample 64 pictures from always the same noise, as one PNG."""
    images_BCHW = process.sample(model, 64, steps=settings.sample_steps, eta=settings.eta)
    grid_HW = images_BCHW.reshape(8, 8, 8, 8).permute(0, 2, 1, 3).reshape(64, 64)
    picture = Image.fromarray(((grid_HW + 1) * 127.5).round().to(torch.uint8).numpy())
    file = io.BytesIO()
    picture.resize((512, 512), Image.Resampling.NEAREST).save(file, "PNG")
    return {"digits.png": file.getvalue()}


class Diffusion:
    """Noise that is added in T steps, with variances from 1e-4 to 0.02 (Ho et al. 2020, section 4)."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        # Fewer steps are longer ones, so that the last picture is noise in any case.
        betas_T = torch.linspace(1e-4, 0.02, steps, dtype=torch.float64) * (1000 / steps)
        self.kept_T = torch.cumprod(1 - betas_T.clamp(max=0.999), 0).float()

    def noisy(self, images: torch.Tensor, steps: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        """Return pictures after so many steps, equation 4: (C, H, W) and a step, or (B, C, H, W) and (B,)."""
        kept = self.kept_T[steps][..., None, None, None]
        noisy: torch.Tensor = kept.sqrt() * images + (1 - kept).sqrt() * noise
        return noisy

    @torch.no_grad()
    def sample(self, model: nn.Module, count: int, *, steps: int, eta: float, seed: int = 0) -> torch.Tensor:
        """Return pictures in [-1, 1], (B, C, H, W) on the CPU: equation 12 of Song et al. 2021."""
        device = next(model.parameters()).device
        generator = torch.Generator().manual_seed(seed)
        images_BCHW = torch.randn(count, 1, 8, 8, generator=generator)
        times = torch.linspace(self.steps - 1, 0, min(steps, self.steps)).round().long()
        for time, following in zip(times, [*times[1:], None], strict=True):
            noise_BCHW = model(images_BCHW.to(device), time.expand(count).to(device)).float().cpu()
            kept, next_kept = self.kept_T[time], torch.ones(()) if following is None else self.kept_T[following]
            clean_BCHW = ((images_BCHW - (1 - kept).sqrt() * noise_BCHW) / kept.sqrt()).clamp(-1, 1)
            # Clamping the picture changes the noise that leads to it.
            noise_BCHW = (images_BCHW - kept.sqrt() * clean_BCHW) / (1 - kept).sqrt()
            deviation = eta * ((1 - next_kept) / (1 - kept) * (1 - kept / next_kept)).sqrt()
            direction_BCHW = (1 - next_kept - deviation**2).clamp(min=0).sqrt() * noise_BCHW
            fresh_BCHW = torch.randn(images_BCHW.shape, generator=generator)
            images_BCHW = next_kept.sqrt() * clean_BCHW + direction_BCHW + deviation * fresh_BCHW
        return images_BCHW.clamp(-1, 1)


class Denoiser(nn.Module):
    """Predicts the noise in a picture from the picture and the step."""

    def __init__(self, width: int, blocks: int) -> None:
        super().__init__()
        self.width = width
        self.time = nn.Sequential(nn.Linear(width, 2 * width), nn.SiLU(), nn.Linear(2 * width, width))
        self.stem = nn.Conv2d(1, width, 3, padding=1)
        self.blocks = nn.ModuleList(Block(width) for _ in range(blocks))
        self.head = nn.Sequential(nn.GroupNorm(8, width), nn.SiLU(), nn.Conv2d(width, 1, 3, padding=1))

    def forward(self, images_BCHW: torch.Tensor, steps_B: torch.Tensor) -> torch.Tensor:
        """Return the noise, (B, C, H, W)."""
        # The positions' embedding of Vaswani et al. 2017 (arXiv:1706.03762), section 3.5.
        half = self.width // 2
        rates_E = torch.exp(-math.log(10_000) / half * torch.arange(half, device=steps_B.device))
        angles_BE = steps_B[:, None] * rates_E
        time_BE = self.time(torch.cat([angles_BE.sin(), angles_BE.cos()], 1))
        hidden_BCHW = self.stem(images_BCHW)
        for block in self.blocks:
            hidden_BCHW = block(hidden_BCHW, time_BE)
        noise_BCHW: torch.Tensor = self.head(hidden_BCHW)
        return noise_BCHW


class Block(nn.Module):
    """Two convolutions with the step's embedding in between, and a shortcut."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.before = nn.Sequential(nn.GroupNorm(8, width), nn.SiLU(), nn.Conv2d(width, width, 3, padding=1))
        self.time = nn.Linear(width, width)
        self.after = nn.Sequential(nn.GroupNorm(8, width), nn.SiLU(), nn.Conv2d(width, width, 3, padding=1))

    def forward(self, x_BCHW: torch.Tensor, time_BE: torch.Tensor) -> torch.Tensor:
        """Return the block's output, (B, C, H, W)."""
        hidden_BCHW = self.before(x_BCHW) + self.time(time_BE)[:, :, None, None]
        after_BCHW: torch.Tensor = self.after(hidden_BCHW)
        return x_BCHW + after_BCHW
