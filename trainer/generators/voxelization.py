"""Shells like skulls, each with five defects: clouds of points on their surfaces, and which grid nodes are bone.

A shell is star-shaped: bone lies between an inner and an outer radius, which depend on the direction, but not in a
cone below (the neck). A defect is another cone, whose bone is the implant. The volume is that of the complete skull.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

# Shape legend: N points, G grid nodes a side, W waves.
DEFECTS = ("bilateral", "frontoorbital", "parietotemporal", "random_1", "random_2")
GRID = 32
DEFECTIVE_POINTS, IMPLANT_POINTS = 27_648, 3_072
_NECK = 0.75
"""Cosine of the neck's half angle, about the direction (0, 0, -1)."""
_DOWN = np.array([0.0, 0.0, -1.0])
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]


def generate(folder: Path, *, count: int | None, seed: int) -> None:
    """Write `count` pairs (default 40), five for each skull: clouds of 30,720 points, volumes of 32 nodes a side."""
    for number in range(40 if count is None else count):
        skull, defect = divmod(number, len(DEFECTS))
        shell = draw_shell(np.random.default_rng([seed, skull]))
        rng = np.random.default_rng([seed, skull, defect])
        name = f"{skull:03d}_{DEFECTS[defect]}"
        points_N3 = sample_points(shell, draw_defect(rng), rng)
        np.savez_compressed(folder / f"{name}_pc.npz", points=points_N3.astype(np.float32))
        np.savez_compressed(folder / f"{name}_vox.npz", psr=render_volume(shell, GRID))


@dataclass(frozen=True, slots=True, kw_only=True)
class Shell:
    """A skull without its neck: an ellipsoid with waves, whose vectors are (W, 3) and heights (W,).

    Lengths are shares of the volume's side.
    """

    centre_3: Floats
    radii_3: Floats
    thickness: float
    waves: Floats
    heights: Floats

    def outer_radius(self, directions_N3: Floats) -> Floats:
        """Return the outer surface's distance from the centre in each direction (unit vectors), (N,)."""
        ellipsoid_N = 1 / np.linalg.norm(directions_N3 / self.radii_3, axis=1)
        waves: Floats = 1 + np.sin(directions_N3 @ self.waves.T) @ self.heights
        radii_N: Floats = ellipsoid_N * waves
        return radii_N


@dataclass(frozen=True, slots=True, kw_only=True)
class Cone:
    """Directions within an angle of an axis; `cosine` is the half angle's."""

    axis_3: Floats
    cosine: float

    def contains(self, directions_N3: Floats) -> Bools:
        """Tell which directions lie within it, (N,)."""
        inside: Bools = directions_N3 @ self.axis_3 > self.cosine
        return inside


NECK = Cone(axis_3=_DOWN, cosine=_NECK)


def draw_shell(rng: np.random.Generator) -> Shell:
    """Draw a skull's place, size and shape."""
    return Shell(
        centre_3=0.5 + rng.uniform(-0.07, 0.07, 3),
        radii_3=rng.uniform(0.22, 0.36, 3),
        thickness=float(rng.uniform(0.07, 0.1)),
        waves=rng.uniform(-3, 3, (4, 3)),
        heights=rng.uniform(-0.03, 0.03, 4),
    )


def draw_defect(rng: np.random.Generator) -> Cone:
    """Draw a defect in the upper half, with a half angle of 20 to 35 degrees."""
    axis_3 = draw_directions(1, rng)[0]
    axis_3[2] = abs(axis_3[2])
    return Cone(axis_3=axis_3, cosine=float(np.cos(np.radians(rng.uniform(20, 35)))))


def render_volume(shell: Shell, grid: int) -> NDArray[np.float32]:
    """Return -0.5 at the nodes i / grid that are bone, and +0.5 at the others, (G, G, G)."""
    axis_G = np.arange(grid) / grid
    nodes_N3 = np.stack(np.meshgrid(axis_G, axis_G, axis_G, indexing="ij"), -1).reshape(-1, 3)
    bone_GGG = is_bone(shell, nodes_N3).reshape((grid,) * 3)
    return np.where(bone_GGG, np.float32(-0.5), np.float32(0.5))


def is_bone(shell: Shell, points_N3: Floats) -> Bools:
    """Tell which points lie in the complete skull, (N,)."""
    offsets_N3 = points_N3 - shell.centre_3
    distances_N = np.linalg.norm(offsets_N3, axis=1)
    directions_N3 = offsets_N3 / np.maximum(distances_N, 1e-12)[:, None]
    outer_N = shell.outer_radius(directions_N3)
    within: Bools = (distances_N <= outer_N) & (distances_N >= outer_N - shell.thickness)
    return within & ~NECK.contains(directions_N3)


def sample_points(shell: Shell, defect: Cone, rng: np.random.Generator) -> Floats:
    """Draw points on the surfaces of the defective skull, then on those of the implant, (N, 3) in (0, 1)."""

    def is_rest(directions_N3: Floats) -> Bools:
        return ~defect.contains(directions_N3) & ~NECK.contains(directions_N3)

    rest_N3 = _sample_surface(shell, is_rest, (NECK, defect), DEFECTIVE_POINTS, rng)
    implant_N3 = _sample_surface(shell, defect.contains, (defect,), IMPLANT_POINTS, rng)
    return np.concatenate([rest_N3, implant_N3])


def draw_directions(count: int, rng: np.random.Generator) -> Floats:
    """Draw unit vectors, evenly over all directions, (N, 3)."""
    vectors_N3 = rng.standard_normal((count, 3))
    unit: Floats = vectors_N3 / np.linalg.norm(vectors_N3, axis=1, keepdims=True)
    return unit


def _sample_surface(
    shell: Shell, belongs: Callable[[Floats], Bools], cuts: tuple[Cone, ...], count: int, rng: np.random.Generator
) -> Floats:
    """Draw points on the outer and the inner surface of a part, and on the walls where cones cut it off."""
    on_walls = count // 8
    walls = [_sample_wall(shell, cone, on_walls // len(cuts), rng) for cone in cuts]
    left = count - sum(map(len, walls))
    inner_N3 = _sample_face(shell, belongs, left // 2, rng, inner=True)
    outer_N3 = _sample_face(shell, belongs, left - left // 2, rng, inner=False)
    return np.concatenate([inner_N3, outer_N3, *walls])


def _sample_face(
    shell: Shell, belongs: Callable[[Floats], Bools], count: int, rng: np.random.Generator, *, inner: bool
) -> Floats:
    """Draw points on one surface; a direction's share grows with the square of its radius."""
    found: list[Floats] = []
    while sum(map(len, found)) < count:
        directions_N3 = draw_directions(2 * count, rng)
        radii_N = shell.outer_radius(directions_N3) - (shell.thickness if inner else 0)
        keep_N = belongs(directions_N3) & (rng.random(len(radii_N)) < (radii_N / radii_N.max()) ** 2)
        found.append(shell.centre_3 + (radii_N[:, None] * directions_N3)[keep_N])
    return np.concatenate(found)[:count]


def _sample_wall(shell: Shell, cone: Cone, count: int, rng: np.random.Generator) -> Floats:
    """Draw points on the part of a cone that lies within the shell."""
    side_3 = np.cross(cone.axis_3, np.eye(3)[np.argmin(np.abs(cone.axis_3))])
    side_3 /= np.linalg.norm(side_3)
    turn_N = rng.uniform(0, 2 * np.pi, count)[:, None]
    around_N3 = np.cos(turn_N) * side_3 + np.sin(turn_N) * np.cross(cone.axis_3, side_3)
    directions_N3 = cone.cosine * cone.axis_3 + np.sqrt(1 - cone.cosine**2) * around_N3
    radii_N = shell.outer_radius(directions_N3) - rng.uniform(0, shell.thickness, count)
    points_N3: Floats = shell.centre_3 + radii_N[:, None] * directions_N3
    return points_N3
