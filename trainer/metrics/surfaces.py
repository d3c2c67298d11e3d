"""The score of "Vesuvius Challenge - Surface Detection" (Kaggle 2025): .30 topology + .35 surface Dice + .35 VOI.

Its page, "Evaluation", names the parts and weights. The formulas are those of its metric package topometrics (README,
"Mathematical definition", read in November 2026): tolerance 2 voxels, 26-connected components, alpha .3, unlabelled
voxels set to background in both. Where ours differs: `trainer.metrics.topology` says how tunnels are matched, and a
surface is counted in voxels here, in the area of surface elements there.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from trainer.metrics.topology import topology_score

# Shape legend: Z Y X axes of a volume, N foreground voxels.
Mask = NDArray[np.bool_]
TOLERANCE = 2.0
"""Voxels by which a surface may be misplaced."""
ALPHA = 0.3
"""How fast the score of VOI falls."""
_CORNERS = np.ones((3, 3, 3), dtype=bool)
_FACES = ndimage.generate_binary_structure(3, 1)


class SurfaceScore(NamedTuple):
    """The score and its parts, each in [0, 1]; higher is better."""

    score: float
    topology: float
    surface_dice: float
    voi: float


def surface_score(predicted_ZYX: Mask, true_ZYX: Mask, ignored_ZYX: Mask | None = None) -> SurfaceScore:
    """Score a predicted surface.

    Args:
        predicted_ZYX: the predicted surface.
        true_ZYX: the true surface.
        ignored_ZYX: voxels that aren't labelled; None: all are.
    """
    counted_ZYX = np.ones_like(true_ZYX) if ignored_ZYX is None else ~ignored_ZYX
    predicted_ZYX, true_ZYX = predicted_ZYX & counted_ZYX, true_ZYX & counted_ZYX
    topology = topology_score(predicted_ZYX, true_ZYX)
    surface = surface_dice(predicted_ZYX, true_ZYX)
    voi = 1 / (1 + ALPHA * variation_of_information(predicted_ZYX, true_ZYX))
    return SurfaceScore(0.3 * topology + 0.35 * surface + 0.35 * voi, topology, surface, voi)


def surface_dice(predicted_ZYX: Mask, true_ZYX: Mask, *, tolerance: float = TOLERANCE) -> float:
    """Compute the share of both surfaces that lies within the tolerance of the other one.

    Nikolov et al. 2018 (arXiv:1809.04430), section "Performance metrics". A surface here are the voxels with a
    background voxel at one of their faces, each of the same area; beyond the volume is background. It is 1 if both are
    empty, 0 if one is.
    """
    borders = [mask & ~ndimage.binary_erosion(mask, _FACES) for mask in (predicted_ZYX, true_ZYX)]
    if not all(border.any() for border in borders):
        return float(not any(border.any() for border in borders))
    near = 0
    for border, other in (borders, borders[::-1]):
        near += int((ndimage.distance_transform_edt(~other)[border] <= tolerance).sum())
    return near / sum(int(border.sum()) for border in borders)


def variation_of_information(predicted_ZYX: Mask, true_ZYX: Mask) -> float:
    """Compute H(true | predicted) + H(predicted | true) of the components, in bits; 0 if both are empty.

    Meila 2007 (J. Multivariate Analysis 98), over the voxels that are in one of the two. There the background of the
    other one is a component like the rest.
    """
    union_ZYX = predicted_ZYX | true_ZYX
    if not union_ZYX.any():
        return 0.0
    predicted_N, true_N = (
        ndimage.label(mask, _CORNERS)[0][union_ZYX].astype(np.int64) for mask in (predicted_ZYX, true_ZYX)
    )
    together = _entropy(predicted_N * (true_N.max() + 1) + true_N)
    return max(0.0, 2 * together - _entropy(predicted_N) - _entropy(true_N))


def _entropy(labels_N: NDArray[np.int64]) -> float:
    shares = np.unique(labels_N, return_counts=True)[1] / len(labels_N)
    return float(-(shares * np.log2(shares)).sum())
