"""Components, tunnels and cavities: closed forms, and linear algebra over two elements on small volumes."""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from trainer.metrics.topology import count_features, match_features, topology_score

Mask = NDArray[np.bool_]
Cell = tuple[int, ...]


class Homology(NamedTuple):
    """Cycles and boundaries of each dimension, as sums of cells: bit patterns."""

    cycles: list[list[int]]
    boundaries: list[list[int]]


def ring(side: int = 9) -> Mask:
    mask = np.zeros((side, side, side), bool)
    mask[4, 2:7, 2:7] = True
    mask[4, 3:6, 3:6] = False
    return mask


def shell() -> Mask:
    mask = np.zeros((9, 9, 9), bool)
    mask[2:7, 2:7, 2:7] = True
    mask[3:6, 3:6, 3:6] = False
    return mask


def torus() -> Mask:
    """A hollow one: a component, two tunnels, a cavity."""
    z, y, x = np.mgrid[:13, :25, :25] - np.array([6, 12, 12])[:, None, None, None]
    distance = np.sqrt((np.sqrt(y**2 + x**2) - 8) ** 2 + z**2)
    mask: Mask = (distance <= 4) & (distance >= 2.2)
    return mask


@pytest.mark.parametrize(
    ("mask", "features"),
    [
        (np.zeros((4, 4, 4), bool), (0, 0, 0)),
        (np.ones((4, 4, 4), bool), (1, 0, 0)),
        (ring(), (1, 1, 0)),
        (shell(), (1, 0, 1)),
        (torus(), (1, 2, 1)),
        (np.indices((4, 4, 4)).sum(0) % 2 == 0, (32, 0, 0)),  # corners don't connect
    ],
)
def test_known_bodies_have_their_betti_numbers(mask: Mask, features: tuple[int, int, int]) -> None:
    """Components, tunnels, cavities."""
    assert count_features(mask) == features


def test_features_match_where_they_are_the_same_in_the_union() -> None:
    """A cavity that the other volume fills is none of the union; one somewhere else is another one."""
    solid = np.zeros((9, 9, 9), bool)
    solid[2:7, 2:7, 2:7] = True
    assert match_features(shell(), shell()).matched == (1, 0, 1)
    assert match_features(shell(), solid).matched == (1, 0, 0)
    open_shell = shell()
    open_shell[2, 2, 2] = False  # the background is connected by its corners
    assert match_features(open_shell, shell()) == ((1, 0, 0), (1, 0, 0), (1, 0, 1))
    apart = [np.pad(body, ((0, 9), (0, 0), (0, 0))) for body in (shell(), ring())]
    moved = [np.roll(body, 9, 0) for body in apart]
    assert match_features(apart[0], moved[0]) == ((0, 0, 0), (1, 0, 1), (1, 0, 1))
    assert match_features(apart[1], moved[1]) == ((0, 0, 0), (1, 1, 0), (1, 1, 0))
    assert match_features(apart[1] | moved[1], moved[1]).matched == (1, 1, 0)


def test_score_of_known_counts() -> None:
    """F1 = 2m / (p + g), weights .34, .33, .33 over the dimensions that there are; .5 / (p + .5) without a true one."""
    whole = np.pad(shell(), 3)
    assert topology_score(whole, whole, parts=1) == 1
    empty = np.zeros_like(whole)
    assert topology_score(empty, empty, parts=1) == 1
    assert topology_score(empty, whole, parts=1) == 0
    solid = whole.copy()
    solid[5:10, 5:10, 5:10] = True
    # The component matches; the cavity is missing.
    assert topology_score(solid, whole, parts=1) == pytest.approx(0.34 / 0.67)
    # One cavity too many, where there is none.
    assert topology_score(whole, solid, parts=1) == pytest.approx((0.34 + 0.33 * 0.5 / 1.5) / 0.67)


def test_features_are_counted_in_octants_as_in_the_competition() -> None:
    """A sheet across the volume is eight components then; a part that lacks it costs one of them."""
    sheet = np.zeros((8, 8, 8), bool)
    sheet[3:5] = True
    missing = sheet.copy()
    missing[4, :4, :4] = False
    assert topology_score(missing, sheet, parts=1) == 1
    assert topology_score(missing, sheet) == pytest.approx(2 * 7 / (7 + 8))


@pytest.mark.parametrize("seed", range(12))
def test_counts_equal_linear_algebra_over_two_elements(seed: int) -> None:
    """Betti numbers, and the dimension of what both have in the union's homology, from boundary matrices."""
    rng = np.random.default_rng(seed)
    shape = (4, 4, 5)
    predicted = rng.random(shape) < rng.uniform(0.5, 0.85)
    true = predicted ^ (rng.random(shape) < 0.15)
    found = match_features(predicted, true)
    cells = list_cells(np.ones(shape, bool))
    a, b, union = (homology(mask, cells) for mask in (predicted, true, predicted | true))
    assert found.predicted == betti(a)
    assert found.true == betti(b)
    common = [shared_dimension(a, b, union, k) for k in range(3)]
    assert found.matched[0] == common[0]
    assert found.matched[2] == common[2]
    # Tunnels are told apart by their component only.
    assert common[1] <= found.matched[1] <= min(found.predicted[1], found.true[1])


def list_cells(mask: Mask) -> dict[Cell, int]:
    """Number the cells of a cubical complex whose vertices are the voxels: corner and extent along each axis."""
    cells = [(*corner, *extent) for corner in np.ndindex(mask.shape) for extent in product((0, 1), repeat=3)]
    fitting = (cell for cell in cells if all(cell[axis] + cell[3 + axis] < mask.shape[axis] for axis in range(3)))
    return {cell: number for number, cell in enumerate(fitting)}


def homology(mask: Mask, cells: dict[Cell, int]) -> Homology:
    inside: list[list[Cell]] = [[], [], [], []]
    for cell in cells:
        corners = product(*((c, c + e) if e else (c,) for c, e in zip(cell[:3], cell[3:], strict=True)))
        if all(mask[corner] for corner in corners):
            inside[sum(cell[3:])].append(cell)
    cycles, boundaries = [], []
    for k in range(4):
        columns = [(1 << cells[cell], boundary(cell, cells)) for cell in inside[k]]
        cycles.append(kernel(columns))
        boundaries.append([edge for _, edge in columns])
    return Homology(cycles, [*boundaries[1:], []])


def boundary(cell: Cell, cells: dict[Cell, int]) -> int:
    total = 0
    for axis in range(3):
        if cell[3 + axis]:
            for offset in (0, 1):
                face = list(cell)
                face[axis] += offset
                face[3 + axis] = 0
                total ^= 1 << cells[tuple(face)]
    return total


def kernel(columns: list[tuple[int, int]]) -> list[int]:
    """Find the sums of cells without boundary, by elimination."""
    pivots: dict[int, tuple[int, int]] = {}
    cycles = []
    for cell, edge in columns:
        chain, image = cell, edge
        while image and image.bit_length() in pivots:
            other_chain, other_image = pivots[image.bit_length()]
            chain, image = chain ^ other_chain, image ^ other_image
        if image:
            pivots[image.bit_length()] = (chain, image)
        else:
            cycles.append(chain)
    return cycles


def rank(vectors: list[int]) -> int:
    pivots: dict[int, int] = {}
    for vector in vectors:
        rest = vector
        while rest and rest.bit_length() in pivots:
            rest ^= pivots[rest.bit_length()]
        if rest:
            pivots[rest.bit_length()] = rest
    return len(pivots)


def betti(body: Homology) -> tuple[int, ...]:
    return tuple(len(body.cycles[k]) - rank(body.boundaries[k]) for k in range(3))


def shared_dimension(a: Homology, b: Homology, union: Homology, k: int) -> int:
    """The dimension of the intersection of both images in the union's homology."""
    floor = union.boundaries[k]
    base = rank(floor)
    of_a, of_b = rank([*floor, *a.cycles[k]]) - base, rank([*floor, *b.cycles[k]]) - base
    together = rank([*floor, *a.cycles[k], *b.cycles[k]]) - base
    return of_a + of_b - together
