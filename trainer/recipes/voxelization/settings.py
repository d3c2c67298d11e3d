"""The settings of `voxelization`."""

from dataclasses import dataclass, field

from trainer.api import (
    CheckpointSettings,
    OptimizerSettings,
    SampleSettings,
    ScheduleSettings,
    Settings,
    ValidateSettings,
    setting,
)
from trainer.checks.voxelization import HELD_OUT


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSettings:
    """The point clouds and their volumes."""

    folder: str = setting("", "has NNN_<defect>_pc.npz and NNN_<defect>_vox.npz")
    points: int = setting(0, "so many of a cloud's 30,720 points, drawn anew each time; 0: all", minimum=0)
    noise: float = setting(0.0, "deviation of noise on the points in training, in sides of the cube", minimum=0)
    held_out: float = setting(
        HELD_OUT, "share of the skulls for validation, without train.csv and eval.csv", above=0, below=1
    )
    cache: str = setting(
        "", "folder for decoded volumes, 17 MB for each of 512^3; empty: decode them each time", change="freely"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """The network's size; the defaults are the original's."""

    width: int = setting(32, "channels of the PointNet, of the U-Net's first level and of the decoders", minimum=8)
    blocks: int = setting(5, "residual blocks of the PointNet and of each decoder", minimum=1)
    cells: int = setting(32, "cells a side of the feature grid; a multiple of 2^(levels - 1)", minimum=2)
    levels: int = setting(3, "levels of the U-Net", minimum=1)
    offsets: int = setting(7, "points with normals that are made of each point", minimum=1)
    offset_scale: float = setting(0.001, "how far an offset of 1 moves a point, in sides of the cube", above=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class PoissonSettings:
    """The reconstruction of the surface."""

    grid: int = setting(0, "nodes a side; a divisor of the volumes'; 0: as many as they have", minimum=0)
    sigma: float = setting(2.0, "smoothing: a Gaussian of sigma / pi nodes", minimum=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class VoxelizationSettings(Settings):
    """All settings of this recipe."""

    data: DataSettings = field(default_factory=DataSettings)
    model: ModelSettings = field(default_factory=ModelSettings)
    poisson: PoissonSettings = field(default_factory=PoissonSettings)
    hausdorff: bool = setting(
        True, "measure HD95 in validation: distances in a grid as fine as poisson.grid", change="freely"
    )


def make_default_settings() -> VoxelizationSettings:
    """Make those of the run on eight GPUs: 1,300 epochs of Adam, batch 4, a validation every 10 epochs.

    Shape As Points' 5e-4 at batch 2, scaled by 4 / 2; a constant rate, no decay, no clipping.
    """
    return VoxelizationSettings(
        epochs=1300,
        batch_size=4,
        workers=8,
        optimizer=OptimizerSettings(
            name="adam", learning_rate=5e-4, scaling="linear", base_batch=2, weight_decay=0, clip_norm=0
        ),
        schedule=ScheduleSettings(name="constant"),
        validate=ValidateSettings(every_epochs=10),
        checkpoint=CheckpointSettings(every_epochs=5),
        samples=SampleSettings(every_epochs=50),
    )
