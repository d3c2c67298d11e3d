"""How well a predicted surface has the same components, tunnels and cavities as the true one.

The competition's score (its metric package topometrics, README, "Topological score"): for each dimension k, of p
predicted and g true features m are matched, and F1 = 2m / (p + g). The competition matches by persistent homology
(Stucki et al. 2024, arXiv:2407.04683): two features match if they are the same feature of the union of both volumes.
For components and cavities that is counted here exactly. Tunnels are told apart only by the component of the union in
which they are, so their number of matches is an upper bound.

A volume's voxels are the vertices of a cubical complex, as in Betti-Matching-3D: the foreground is 6-connected, the
background 26-connected.
"""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage, sparse

# Shape legend: Z Y X axes of a volume, N labelled components (0 is none of them).
Mask = NDArray[np.bool_]
Labels = NDArray[np.int32]
Counts = NDArray[np.int64]
T = TypeVar("T", bound=np.generic)
_WEIGHTS = (0.34, 0.33, 0.33)
_FACES = ndimage.generate_binary_structure(3, 1)
_CORNERS = np.ones((3, 3, 3), dtype=bool)


class Features(NamedTuple):
    """Numbers of matched, predicted and true features, each for components, tunnels and cavities."""

    matched: tuple[int, int, int]
    predicted: tuple[int, int, int]
    true: tuple[int, int, int]


def topology_score(predicted_ZYX: Mask, true_ZYX: Mask, *, parts: int = 2) -> float:
    """Compute the weighted F1 of components, tunnels and cavities, in [0, 1].

    Dimensions without any feature don't count. Where there is no true feature, F1 is .5 / (p + .5).

    Args:
        predicted_ZYX: the predicted surface.
        true_ZYX: the true surface.
        parts: features are counted in parts of the volume, as many along each axis (the competition's are 2).
    """
    tallies = [match_features(predicted_ZYX[part], true_ZYX[part]) for part in _divide(true_ZYX.shape, parts)]
    matched, predicted, true = (np.sum([tally[i] for tally in tallies], axis=0) for i in range(3))
    total = weight_sum = 0.0
    for m, p, g, weight in zip(matched, predicted, true, _WEIGHTS, strict=True):
        if p + g:
            total += weight * (2 * m / (p + g) if g else 0.5 / (p + 0.5))
            weight_sum += weight
    return float(total / weight_sum) if weight_sum else 1.0


def match_features(predicted_ZYX: Mask, true_ZYX: Mask) -> Features:
    """Count the features of two volumes, and those that are the same feature of their union."""
    union_ZYX = predicted_ZYX | true_ZYX
    whole, count = _label(union_ZYX)
    tallies = [_count_by_component(mask, whole, count) for mask in (predicted_ZYX, true_ZYX, union_ZYX)]
    components, tunnels, cavities = (np.stack([tally[k] for tally in tallies]) for k in range(3))
    in_both = (components[:2] > 0).all(0).sum()
    matched = (int(in_both), int(tunnels.min(0).sum()), _match_cavities(predicted_ZYX, true_ZYX, union_ZYX))
    predicted, true = ((int(components[i].sum()), int(tunnels[i].sum()), int(cavities[i].sum())) for i in range(2))
    return Features(matched, predicted, true)


def count_features(mask_ZYX: Mask) -> tuple[int, int, int]:
    """Count the components, tunnels and cavities of a volume: its Betti numbers."""
    return match_features(mask_ZYX, mask_ZYX).true


def _count_by_component(mask_ZYX: Mask, whole_ZYX: Labels, count: int) -> tuple[Counts, Counts, Counts]:
    """Count a volume's components, tunnels and cavities within each component of a larger one, each (N,)."""
    labels_ZYX, found = _label(mask_ZYX)
    owner_N = np.zeros(found + 1, dtype=np.int64)
    owner_N[labels_ZYX.ravel()] = whole_ZYX.ravel()
    owner_N = owner_N[1:]
    components_N = np.bincount(owner_N, minlength=count + 1)
    inner = np.bincount(owner_N, weights=_count_cavities(mask_ZYX, labels_ZYX, found), minlength=count + 1)
    cavities_N = inner.astype(np.int64)
    # Euler's characteristic is components - tunnels + cavities.
    tunnels_N = components_N + cavities_N - _characteristic(mask_ZYX, whole_ZYX, count)
    return components_N[1:], tunnels_N[1:], cavities_N[1:]


def _characteristic(mask_ZYX: Mask, whole_ZYX: Labels, count: int) -> Counts:
    """Compute vertices - edges + squares - cubes within each component of a larger volume, (N + 1,)."""
    total_N = np.zeros(count + 1, dtype=np.int64)
    for axes in product((0, 1), repeat=3):
        cells_ZYX = mask_ZYX
        for axis, is_wide in enumerate(axes):
            if is_wide:
                first, second = (_shift(cells_ZYX, axis, offset) for offset in (0, 1))
                cells_ZYX = first & second
        owners = whole_ZYX[tuple(slice(side) for side in cells_ZYX.shape)][cells_ZYX]
        total_N += (-1) ** sum(axes) * np.bincount(owners, minlength=count + 1)
    return total_N


def _count_cavities(mask_ZYX: Mask, labels_ZYX: Labels, found: int) -> Counts:
    """Count each component's cavities, (N,): the parts of the background that touch it, but for the one outside it."""
    background_ZYX, parts = _label_outside(mask_ZYX)
    inner_ZYX = np.pad(labels_ZYX, 1)
    pairs = []
    for axis in range(3):
        for near, far in ((0, 1), (1, 0)):
            component, part = _shift(inner_ZYX, axis, near), _shift(background_ZYX, axis, far)
            touching = (component > 0) & (part > 0)
            pairs.append(np.unique(component[touching].astype(np.int64) * (parts + 1) + part[touching]))
    components = np.unique(np.concatenate(pairs)) // (parts + 1)
    return np.bincount(components, minlength=found + 1)[1:] - 1


def _match_cavities(predicted_ZYX: Mask, true_ZYX: Mask, union_ZYX: Mask) -> int:
    """Count the cavities of both volumes that stay apart in their union.

    A cavity of the union is a part of its background. Parts that are one in either volume's background are the same;
    those that are then connected with the outside are none.
    """
    (a_ZYX, a_parts), (b_ZYX, b_parts), (both_ZYX, parts) = map(_label_outside, (predicted_ZYX, true_ZYX, union_ZYX))
    in_a, in_b = np.zeros(parts + 1, dtype=np.int64), np.zeros(parts + 1, dtype=np.int64)
    in_a[both_ZYX.ravel()], in_b[both_ZYX.ravel()] = a_ZYX.ravel(), b_ZYX.ravel()
    edges = (np.ones(parts), (in_a[1:], a_parts + in_b[1:]))
    nodes = a_parts + b_parts + 1
    _, classes = sparse.csgraph.connected_components(sparse.coo_matrix(edges, shape=(nodes, nodes)), directed=False)
    return len(np.unique(classes[in_a[1:]])) - 1


def _label(mask_ZYX: Mask) -> tuple[Labels, int]:
    labels_ZYX, count = ndimage.label(mask_ZYX, _FACES)
    return labels_ZYX, int(count)


def _label_outside(mask_ZYX: Mask) -> tuple[Labels, int]:
    """Label the background's parts, with a border of background around the volume."""
    labels_ZYX, count = ndimage.label(np.pad(~mask_ZYX, 1, constant_values=True), _CORNERS)
    return labels_ZYX, int(count)


def _shift(volume_ZYX: NDArray[T], axis: int, offset: int) -> NDArray[T]:
    """Leave out the last slice along an axis (offset 0), or the first one (offset 1)."""
    side = volume_ZYX.shape[axis]
    return volume_ZYX[(slice(None),) * axis + (slice(offset, side - 1 + offset),)]


def _divide(shape_ZYX: Sequence[int], parts: int) -> Iterator[tuple[slice, ...]]:
    """List the parts of a volume; their sides differ by at most one voxel."""
    cuts = [np.linspace(0, side, min(parts, side) + 1).astype(int) for side in shape_ZYX]
    yield from product(*(map(slice, cut[:-1], cut[1:]) for cut in cuts))
