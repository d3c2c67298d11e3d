"""Implants for skulls with a defect: a diffusion model of point clouds (PCDiff) with a point-voxel network.

Friedrich et al. 2023, Point Cloud Diffusion Models for Automatic Implant Generation (arXiv:2303.08061); the network is
that of Zhou et al. 2021, 3D Shape Generation and Completion through Point-Voxel Diffusion (arXiv:2104.03670).

`settings` has what can be set, `clouds` reads the data, `diffusion` adds and removes noise, `network` is made of
`layers`, which use `voxels` and `neighbours`, `workload` puts all together, and `pictures` draws what comes out.
"""

from trainer.recipes.pcdiff.workload import recipe

__all__ = ["recipe"]
