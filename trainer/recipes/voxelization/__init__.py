"""Skulls out of point clouds: a network that orients points, and a differentiable Poisson surface through them.

    settings    all settings, and their defaults
    workload    data, loss, metrics and samples together
    data        pairs of a point cloud and a volume
    network     PointNet with local pooling, and decoders; unet: the 3-D U-Net in between
    poisson     the surface; grids: between points and grids

Shape As Points (Peng et al. 2021, arXiv:2106.03452), as pfriedri/pcdiff-implant trains it on SkullBreak.
"""

from trainer.api import Recipe
from trainer.recipes.voxelization.settings import VoxelizationSettings, make_default_settings
from trainer.recipes.voxelization.workload import build_workload


def recipe() -> Recipe[VoxelizationSettings]:
    """Return the default configuration."""
    return Recipe(settings=make_default_settings(), build=build_workload)
