"""The training: the decoder's Gaussians, rendered, and compared with the pictures."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import nn

from trainer.api import Batch, Moment, OptimizerSettings, Recipe, SampleSettings, ScheduleSettings, Workload, split
from trainer.metrics.images import psnr, ssim
from trainer.metrics.lpips import Lpips
from trainer.recipes.gaussian.data import SceneFolder
from trainer.recipes.gaussian.decoder import GRID, GaussianDecoder
from trainer.recipes.gaussian.hfts import grow, keep_some
from trainer.recipes.gaussian.losses import Views, compare, perceive, read_lpips, resize
from trainer.recipes.gaussian.render import render
from trainer.recipes.gaussian.settings import GaussianSettings, ModelSettings

# Shape legend: B batch, H height, W width.
SPLIT_SEED = 20_261_201  # the split is part of the task: it doesn't change with the run's seed
_SHOWN = 4
_DEPTH_SIDE = 518
"""Of the exported model's example input: what fresnel's own export takes."""


def recipe() -> Recipe[GaussianSettings]:
    """Return the default configuration: that of fresnel's mode `standard`."""
    settings = GaussianSettings(
        epochs=200,
        batch_size=128,
        optimizer=OptimizerSettings(learning_rate=1e-4, weight_decay=1e-5, clip_norm=1.0),
        schedule=ScheduleSettings(name="cosine", final=0),
        samples=SampleSettings(every_epochs=10),
    )
    return Recipe(settings=settings, build=build_workload)


def build_workload(settings: GaussianSettings) -> Workload:
    """Find the data, and make a decoder for features as wide as theirs."""
    whole = SceneFolder(settings.data, pixels=settings.data.pixels)
    training_pixels = settings.hfts.pixels if settings.hfts.enabled else settings.data.pixels
    small = SceneFolder(settings.data, pixels=training_pixels)
    validation_data = split(whole, settings.data.held_out, seed=SPLIT_SEED)[1]
    model = GaussianDecoder(
        whole.width,
        per_patch=settings.model.gaussians_per_patch,
        dropout=settings.model.dropout,
        upright=settings.model.upright,
        near_in_front=settings.model.near_in_front,
    )
    lpips = read_lpips(settings.loss.lpips_weights)

    def loss(model: nn.Module, batch: Batch, moment: Moment) -> torch.Tensor:
        return compute_loss(model, batch, moment, settings, lpips)

    def measure(model: nn.Module, batch: Batch) -> Mapping[str, torch.Tensor]:
        ours, theirs = view(model, batch), target(batch, settings.model)
        images_B3HW = ours.images.clamp(0, 1)
        perceived = {} if lpips is None else {"lpips": perceive(lpips, images_B3HW, theirs.images)}
        return {
            "loss": compare(ours, theirs, settings.loss, lpips),
            "psnr": psnr(images_B3HW, theirs.images),
            "ssim": ssim(images_B3HW, theirs.images),
            **perceived,
        }

    def draw(model: nn.Module, _moment: Moment) -> Mapping[str, torch.Tensor]:
        device = next(model.parameters()).device
        scenes = [validation_data.sample(i, np.random.default_rng(0)) for i in range(min(_SHOWN, len(validation_data)))]
        batch = [torch.stack(parts).to(device) for parts in zip(*scenes, strict=True)]
        ours_B3HW = view(model, batch).images.clamp(0, 1)
        pairs = torch.cat([batch[0], ours_B3HW], -1)
        return {"target-and-rendered.png": torch.cat(list(pairs), -2).permute(1, 2, 0).cpu()}

    return Workload(
        model=model,
        train_data=split(small, settings.data.held_out, seed=SPLIT_SEED)[0],
        validation_data=validation_data,
        loss=loss,
        metrics=measure,
        best="psnr",
        best_is="max",
        samples=draw,
        export_inputs=make_example(whole.width),
        export_names=(("features", "depth"), ("positions", "scales", "rotations", "colors", "opacities")),
        data=f"{len(whole)} pictures with DINOv2 features of width {whole.width} and depths",
    )


def compute_loss(
    model: nn.Module, batch: Batch, moment: Moment, settings: GaussianSettings, lpips: Lpips | None = None
) -> torch.Tensor:
    """Render a training batch, with HFTS only some of its Gaussians, and return its mean loss."""
    images_B3HW, features_BDGG, depth_B1HW = batch
    if not settings.hfts.enabled:
        return compare(view(model, batch), target(batch, settings.model), settings.loss, lpips).mean()
    per_patch = grow(moment.fraction, settings.model.gaussians_per_patch)
    gaussians = model(features_BDGG, depth_B1HW, per_patch)
    gaussians = keep_some(gaussians, settings.hfts.kept) if settings.hfts.kept else gaussians
    ours = Views(*render(gaussians, images_B3HW.shape[-1]))
    return compare(ours, target(batch, settings.model), settings.loss, lpips).mean()


def view(model: nn.Module, batch: Batch) -> Views:
    """Render all Gaussians of a batch, at its pictures' size."""
    images_B3HW, features_BDGG, depth_B1HW = batch
    return Views(*render(model(features_BDGG, depth_B1HW), images_B3HW.shape[-1]))


def target(batch: Batch, settings: ModelSettings) -> Views:
    """Return a batch's own pictures, and their depths at the same size, as far from the camera as the decoder's."""
    depth_BHW = resize(batch[2], batch[0].shape[-1])
    return Views(batch[0], 1 - depth_BHW if settings.near_in_front else depth_BHW)


def make_example(width: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return features (2, D, G, G) and depths for the export and its check, without drawing from the run's generators.

    All patches of a picture are alike: a rotation's quaternion may change its sign by rounding, if one of its
    components is nearly 0, and a few rotations meet that less often than thousands.
    """
    generator = torch.Generator().manual_seed(0)
    features_BDGG = torch.randn(2, width, 1, 1, generator=generator).repeat(1, 1, GRID, GRID)
    return features_BDGG, torch.rand(2, 1, _DEPTH_SIDE, _DEPTH_SIDE, generator=generator)
