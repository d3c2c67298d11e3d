"""Hybrid fast training (HFTS) of fresnel: few Gaussians of a patch at first, and few of a picture at any time."""

import torch

from trainer.recipes.gaussian.decoder import Gaussians

# Shape legend: B batch, N Gaussians, M kept ones.
_STAGES = (1, 2, 4)
"""Gaussians of a patch in the first three quarters of the training; the last quarter has all."""
_LEAST_CHANCE = 1e-6


def grow(fraction: float, per_patch: int) -> int:
    """Return how many Gaussians a patch has after this share of the training."""
    stage = int(4 * fraction)
    return min(_STAGES[stage], per_patch) if stage < len(_STAGES) else per_patch


def keep_some(gaussians: Gaussians, kept: int) -> Gaussians:
    """Draw some Gaussians of each picture without replacement, with chances in proportion to their opacity.

    They stay in their order. The chances have no gradient. What is no number isn't refused here: the loss shows it.
    """
    chances_BN = gaussians.opacities.detach().float().nan_to_num() + _LEAST_CHANCE
    if kept >= chances_BN.shape[1]:
        return gaussians
    drawn_BM = torch.multinomial(chances_BN, kept).sort(1).values
    parts = (
        part.gather(1, drawn_BM.reshape(*drawn_BM.shape, *[1] * (part.ndim - 2)).expand(-1, -1, *part.shape[2:]))
        for part in gaussians
    )
    return Gaussians(*parts)
