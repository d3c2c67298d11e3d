"""Pictures as 3-D Gaussians: a decoder of DINOv2 patch features, trained through a differentiable renderer.

The project fresnel (github.com/CalebisGross/fresnel) trains it; its data and its checkpoints are read as they are. Here
live the decoder, the renderer (camera, tiles, compositing), the loss, the fast training (HFTS), and the reader of the
data. Checks and generators of the data are in `trainer.checks` and `trainer.generators`.
"""

from trainer.recipes.gaussian.workload import recipe

__all__ = ["recipe"]
