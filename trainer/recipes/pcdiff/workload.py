"""Puts data, network, loss, metrics and samples together."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from trainer.api import BadRequestError, Batch, CheckpointSettings, Moment, Recipe, Workload
from trainer.checks._skulls import Case
from trainer.metrics.points import chamfer_distance
from trainer.recipes.pcdiff.clouds import SkullClouds, read_cases, spread_cases
from trainer.recipes.pcdiff.diffusion import Diffusion
from trainer.recipes.pcdiff.network import PointVoxelNet
from trainer.recipes.pcdiff.pictures import draw_case
from trainer.recipes.pcdiff.settings import ADAM, EXPONENTIAL, PCDiffSettings, SamplingSettings, check_settings

# Shape legend: B batch, S points of the skull, I of the implant.


def recipe() -> Recipe[PCDiffSettings]:
    """Return the default configuration: 15,000 epochs in batches of 8, a milestone every 1,000 epochs."""
    settings = PCDiffSettings(
        epochs=15_000,
        batch_size=8,
        workers=4,
        optimizer=ADAM,
        schedule=EXPONENTIAL,
        checkpoint=CheckpointSettings(every_epochs=0, keep_every_epochs=1_000),
    )
    return Recipe(
        settings=replace(settings, validate=replace(settings.validate, every_epochs=100)), build=build_workload
    )


def build_workload(settings: PCDiffSettings) -> Workload:
    """Read the lists of skulls, and make the network."""
    check_settings(settings)
    _check_sharding(settings)
    folder, process = Path(settings.data.folder), Diffusion(settings.diffusion)
    train, validation = read_cases(folder)
    validation_data = SkullClouds(folder, validation, settings.data, process, is_training=False)
    model = PointVoxelNet(settings.model, points=settings.data.points)
    is_sampled = settings.sampling.validation_count > 0
    return Workload(
        model=model,
        train_data=SkullClouds(folder, train, settings.data, process, is_training=True),
        validation_data=validation_data,
        loss=lambda model, batch: compute_loss(model, batch).mean(),
        metrics=lambda model, batch: {"loss": compute_loss(model, batch)},
        set_metrics={"chamfer": partial(SampledChamfer, process, settings.sampling, validation)} if is_sampled else {},
        best="chamfer" if is_sampled else "loss",
        blocks=model.list_blocks(),
        samples=lambda model, moment: draw_samples(model, moment, validation_data, process, settings.sampling),
        data=f"{len(train)} + {len(validation)} skulls with a defect, in SkullBreak's layout",
    )


def compute_loss(model: nn.Module, batch: Batch) -> torch.Tensor:
    """Compute every sample's mean squared error of the predicted noise, (B,)."""
    predicted_BI3 = model(batch["skull"], batch["noisy"], batch["step"])
    return functional.mse_loss(predicted_BI3.float(), batch["noise"], reduction="none").mean((1, 2))


class SampledChamfer:
    """The mean Chamfer distance between some cases' implants and those made by a short DDIM, in the files' unit.

    The cases are of different skulls and defects. The noise depends only on the case, so the result is the same for any
    batch and any number of processes.
    """

    def __init__(self, process: Diffusion, sampling: SamplingSettings, cases: list[Case]) -> None:
        self._process, self._chosen = process, torch.tensor(spread_cases(cases, sampling.validation_count))
        self._sampling = replace(sampling, method="ddim", steps=sampling.validation_steps, eta=0.0)
        self._distances: dict[int, float] = {}

    def update(self, model: nn.Module, batch: Batch) -> None:
        """Make implants for those of the batch's cases that are chosen."""
        chosen_B = torch.isin(batch["index"], self._chosen.to(batch["index"].device))
        if not chosen_B.any():
            return
        skull_BS3, implant_BI3 = batch["skull"][chosen_B], batch["implant"][chosen_B]
        cases = batch["index"][chosen_B].tolist()
        made_BI3 = self._process.sample(model, skull_BS3, implant_BI3.shape[1], self._sampling, cases)
        distance_B = chamfer_distance(made_BI3, implant_BI3) * batch["scale"][chosen_B]
        self._distances |= dict(zip(cases, distance_B.tolist(), strict=True))

    def state(self) -> dict[int, float]:
        """Return the distances by case."""
        return self._distances

    def merge(self, states: Sequence[Any]) -> float:
        """Average over the cases of all processes."""
        distances = {case: value for state in states for case, value in state.items()}
        return float(np.mean([distances[case] for case in sorted(distances)]))


def draw_samples(
    model: nn.Module, _moment: Moment, cases: SkullClouds, process: Diffusion, settings: SamplingSettings
) -> Mapping[str, Any]:
    """Make implants for some held-out cases: per case the clouds of skull, truth and sample, and a picture."""
    device = next(model.parameters()).device
    chosen = spread_cases(cases.cases, settings.count)
    samples = [cases.sample(index, np.random.default_rng(index)) for index in chosen]
    skull_BS3 = torch.stack([sample["skull"] for sample in samples]).to(device)
    made_BI3 = process.sample(model, skull_BS3, len(samples[0]["implant"]), settings, chosen).cpu()
    files: dict[str, Any] = {}
    for index, sample, made_I3 in zip(chosen, samples, made_BI3, strict=True):
        name = f"{cases.cases[index].skull}-{cases.cases[index].defect}"
        clouds = {"partial": sample["skull"], "ground_truth": sample["implant"], "samples": made_I3}
        for what, points_N3 in clouds.items():
            files[f"{name}-{what}.ply"] = sample["shift"] + sample["scale"] * points_N3
        files[f"{name}.png"] = draw_case(*clouds.values())
    return files


def _check_sharding(settings: PCDiffSettings) -> None:
    if settings.compute.fully_shard and settings.sampling.validation_count:
        raise BadRequestError(
            "the Chamfer distance can't be computed with compute.fully_shard",
            why="only some processes make implants, and a sharded model needs all of them in each forward pass",
            fix="--set sampling.validation_count=0, or train without compute.fully_shard: the weights take 0.1 GiB",
        )
