"""The settings of the recipe. Defaults are those of pfriedri/pcdiff-implant (pcdiff/train_completion.py)."""

from dataclasses import dataclass, field
from typing import Literal

from trainer.api import BadRequestError, OptimizerSettings, ScheduleSettings, Settings, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class DataSettings:
    """The skulls."""

    folder: str = setting("", "has defective_skull/DEFECT/*_surf.npy, implant/DEFECT/*_surf.npy, train.csv, test.csv")
    points: int = setting(30_720, "points of a skull and its implant together", minimum=16)
    implant_points: int = setting(3_072, "how many of these are the implant's", minimum=8)
    normalize: Literal["both", "skull"] = setting(
        "both", "whose bounding box becomes +-3 in training; in validation it is the skull's: the implant is unknown"
    )
    rotation_degrees: float = setting(0.0, "random rotation in training, about each axis, up to this", minimum=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffusionSettings:
    """The process between implants and noise."""

    steps: int = setting(1_000, "steps from an implant to noise", minimum=2)
    first_beta: float = setting(1e-4, "variance of the first step's noise", above=0, below=1)
    last_beta: float = setting(0.02, "that of the last one; linear in between", above=0, below=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """The network's size."""

    width: float = setting(1.0, "multiplies the channels; a multiple of 0.25", minimum=0.25)
    voxels: float = setting(1.0, "multiplies the sides of the voxel grids 32, 16 and 8", minimum=0.25)
    embedding: int = setting(64, "channels of the step's embedding; even", minimum=4)
    attention: bool = setting(True, "between the voxels of the second level, and between the last level's centers")
    dropout: float = setting(0.1, "in voxel convolutions", minimum=0, below=1)
    neighbours: int = setting(128, "points that a center gathers", minimum=1)
    radius: float = setting(0.1, "of the first level's balls; each level doubles it", above=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingSettings:
    """How implants are made of noise."""

    method: Literal["ddpm", "ddim"] = setting(
        "ddim", "for samples: ddpm: all steps; ddim: some of them", change="freely"
    )
    steps: int = setting(50, "ddim: how many steps", minimum=1, change="freely")
    eta: float = setting(0.0, "ddim: noise on the way: 0: none, 1: as much as ddpm", minimum=0, change="freely")
    limit: float = setting(
        0.0,
        "largest coordinate of an implant while it is made; 0: none, as in the original",
        minimum=0,
        change="freely",
    )
    count: int = setting(4, "how many implants are written as samples", minimum=1, change="freely")
    validation_count: int = setting(8, "how many are made for the Chamfer distance; 0: none", minimum=0)
    validation_steps: int = setting(25, "ddim's steps there", minimum=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class PCDiffSettings(Settings):
    """All settings of this recipe."""

    data: DataSettings = field(default_factory=DataSettings)
    diffusion: DiffusionSettings = field(default_factory=DiffusionSettings)
    model: ModelSettings = field(default_factory=ModelSettings)
    sampling: SamplingSettings = field(default_factory=SamplingSettings)


# Rates of W4's table are those for a batch of 8, scaled (`optimizer.scaling`).
ADAM = OptimizerSettings(
    name="adam", learning_rate=2e-4, base_batch=8, betas=(0.5, 0.999), weight_decay=0.0, clip_norm=0.0
)
EXPONENTIAL = ScheduleSettings(name="exponential", gamma=1.0)


def check_settings(settings: PCDiffSettings) -> None:
    """Check what only several settings together can violate.

    Raises:
        BadRequestError: one of them is of no use.
    """
    data, model = settings.data, settings.model
    if data.points - data.implant_points < data.implant_points:
        raise BadRequestError(
            f"data.points={data.points} leaves {data.points - data.implant_points} points to the skull",
            why=f"data.implant_points is {data.implant_points}, and the skull has at least as many",
            fix=f"--set data.implant_points={max(8, data.points // 10)}",
        )
    if model.width % 0.25 or model.voxels % 0.25 or model.embedding % 2:
        raise BadRequestError(
            f"a network with model.width={model.width:g}, model.voxels={model.voxels:g} and "
            f"model.embedding={model.embedding} can't be built",
            why="the narrowest layer has 32 channels, in groups of 8, and the grids have sides of 8, 16 and 32",
            fix="use multiples of 0.25 for width and voxels, and an even embedding",
        )
    if not settings.diffusion.first_beta <= settings.diffusion.last_beta:
        raise BadRequestError(
            "diffusion.first_beta is larger than diffusion.last_beta",
            why="noise grows from step to step",
            fix="--set diffusion.first_beta=0.0001 --set diffusion.last_beta=0.02",
        )
