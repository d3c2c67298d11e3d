"""Builds the workload: data, network, loss, metrics and samples."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from trainer.api import BadRequestError, Batch, Workload
from trainer.metrics.volumes import dice, hausdorff95, intersection_over_union
from trainer.recipes.voxelization.data import OUTSIDE, SkullPairs, list_pairs, read_grid_size
from trainer.recipes.voxelization.network import SurfaceNet
from trainer.recipes.voxelization.settings import VoxelizationSettings
from trainer.recipes.voxelization.unet import list_levels

# Shape legend: B batch, N points, G nodes a side.
VOXELS = 512
"""Voxels a side of the original's volumes, in which HD95 is measured whatever the grid."""
LARGEST_EXPORT = 128
"""Up to so many nodes a side the network is exported to ONNX, because onnxruntime's check of a finer one takes minutes,
and samples have the function itself: its floats hardly compress, and at 512 nodes are half a gigabyte."""


def build_workload(settings: VoxelizationSettings) -> Workload:
    """Make the data and the network from the settings."""
    train, evaluation = list_pairs(Path(settings.data.folder), settings.data.held_out)
    grid = settings.poisson.grid or read_grid_size(train[0].volume)
    _check_sizes(settings, grid, read_grid_size(train[0].volume))
    cache = Path(settings.data.cache) if settings.data.cache else None
    read = partial(SkullPairs, grid=grid, points=settings.data.points, cache=cache)
    validation_data = read(evaluation)
    network = SurfaceNet(settings.model, grid=grid, sigma=settings.poisson.sigma)
    return Workload(
        model=network,
        train_data=read(train, noise=settings.data.noise),
        validation_data=validation_data,
        loss=compare,
        metrics=partial(measure, hausdorff=settings.hausdorff),
        best="psr_l2",
        samples=lambda model, _moment: draw(model, validation_data),
        blocks=list_levels(network.encoder.unet3d),
        export_inputs=make_export_inputs(validation_data) if grid <= LARGEST_EXPORT else None,
        data=f"{len(train)} point clouds of skulls with implants for training, {len(evaluation)} for validation, "
        f"volumes of {grid} nodes a side",
    )


def compare(model: nn.Module, batch: Batch) -> torch.Tensor:
    """Compute the mean squared difference of the functions' tanh, a scalar."""
    predicted_BGGG = model(batch["points"])
    return functional.mse_loss(predicted_BGGG.tanh(), to_function(batch["bone"]).tanh())


def to_function(bone_BGGG: torch.Tensor) -> torch.Tensor:
    """Return the function of a volume: -0.5 inside, +0.5 outside."""
    return OUTSIDE - bone_BGGG.float()


def measure(model: nn.Module, batch: Batch, *, hausdorff: bool = True) -> Mapping[str, torch.Tensor]:
    """Compute every sample's loss, squared difference without tanh, Dice, IoU and HD95, each (B,).

    `psr_l2` is what the original selects its best weights by. HD95 is in voxels of a 512th of the cube.
    """
    predicted_BGGG, bone_BGGG = model(batch["points"]).float(), batch["bone"]
    inside_BGGG, target_BGGG = predicted_BGGG < 0, to_function(bone_BGGG)
    values = {
        "loss": (predicted_BGGG.tanh() - target_BGGG.tanh()).square().mean((1, 2, 3)),
        "psr_l2": (predicted_BGGG - target_BGGG).square().mean((1, 2, 3)),
        "dice": dice(inside_BGGG, bone_BGGG),
        "iou": intersection_over_union(inside_BGGG, bone_BGGG),
    }
    if hausdorff:
        spacing = VOXELS / target_BGGG.shape[-1]
        pairs = zip(inside_BGGG, bone_BGGG, strict=True)
        values["hd95"] = torch.stack([hausdorff95(*pair, spacing=spacing).to(target_BGGG.device) for pair in pairs])
    return values


def make_export_inputs(data: SkullPairs) -> tuple[torch.Tensor, ...]:
    """Return two clouds, (2, N, 3): the exported network takes clouds of N points."""
    points_N3 = data.sample(0, np.random.default_rng(0))["points"]
    return (torch.stack([points_N3, points_N3.flip(0)]),)


def draw(model: nn.Module, data: SkullPairs) -> Mapping[str, Any]:
    """Reconstruct the first skull of the validation: where bone is, the oriented points, and three slices."""
    device = next(model.parameters()).device
    sample = data.sample(0, np.random.default_rng(0))
    points_1N3, target_GGG = sample["points"][None].to(device), to_function(sample["bone"])
    assert isinstance(model, SurfaceNet)  # noqa: S101 - the trainer passes the model without its wrappers
    moved_1N3, normals_1N3 = model.orient(points_1N3)
    predicted_GGG = model.solver(moved_1N3, normals_1N3)[0].cpu()
    samples = {
        "bone.npz": (predicted_GGG < 0).byte(),
        "points.ply": moved_1N3[0],
        "normals.npy": normals_1N3[0],
        "slices.png": draw_slices(predicted_GGG, target_GGG),
    }
    return samples if predicted_GGG.shape[0] > LARGEST_EXPORT else {**samples, "volume.npz": predicted_GGG}


def draw_slices(predicted_GGG: torch.Tensor, target_GGG: torch.Tensor) -> torch.Tensor:
    """Draw the middle slice along each axis, predicted above and true below, 8 bits: bone is white, (H, W)."""
    middle, zoom = predicted_GGG.shape[0] // 2, max(1, 256 // predicted_GGG.shape[0])
    rows = [
        torch.cat([volume_GGG.select(axis, middle) for axis in range(3)], 1)
        for volume_GGG in (predicted_GGG, target_GGG)
    ]
    share_HW = (0.5 - torch.cat(rows, 0)).clamp(0, 1)
    return (share_HW * 255).round().to(torch.uint8).repeat_interleave(zoom, 0).repeat_interleave(zoom, 1)


def _check_sizes(settings: VoxelizationSettings, grid: int, size: int) -> None:
    levels = 1 << (settings.model.levels - 1)
    if size % grid:
        raise BadRequestError(
            f"poisson.grid={grid} doesn't fit these data",
            why=f"their volumes have {size} nodes a side, which is no multiple of it",
            fix=f"set poisson.grid to a divisor of {size}, or to 0: as fine as the data",
        )
    if settings.model.cells % levels:
        raise BadRequestError(
            f"model.cells={settings.model.cells} doesn't fit model.levels={settings.model.levels}",
            why="each level of the U-Net halves the cells",
            fix=f"set model.cells to a multiple of {levels}",
        )
