"""Shells like skulls, each with five defects and the implants that fill them, in the layout of SkullBreak's clouds.

A skull is an ellipsoid with a few bumps and two surfaces, 512 units wide as the real volumes are; a defect is a hole
with a wavy edge. Where it is, how large it is and how the shell is bent around it can be seen in the defective skull,
so the implant can be learnt.
"""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

# Shape legend: N points, F bumps.
_SKULLS = 20
_HELD_OUT = 5
_SKULL_POINTS, _IMPLANT_POINTS = 6_000, 2_000
_MIDDLE, _THICKNESS, _BUMPS = 256.0, 14.0, 6
# Where each defect's middle points, x right, y front, z up; None: anywhere in the upper half.
_DEFECTS: dict[str, tuple[float, float, float] | None] = {
    "bilateral": (0.0, -0.2, 1.0),
    "frontoorbital": (0.0, 1.0, 0.35),
    "parietotemporal": (1.0, -0.5, 0.5),
    "random_1": None,
    "random_2": None,
}
Points = NDArray[np.float64]
Directions = NDArray[np.float64]
Radius = Callable[[Directions], NDArray[np.float64]]


def generate(folder: Path, *, count: int | None, seed: int) -> None:
    """Write so many skulls; every fifth of them, and at least one of two or more, is in test.csv."""
    skulls = _SKULLS if count is None else max(2, count)
    names = [f"{number:03}" for number in range(skulls)]
    for number, name in enumerate(names):
        _write_skull(folder, name, np.random.default_rng((seed, number)))
    held_out = max(1, skulls // _HELD_OUT)
    for file, chosen in (("train.csv", names[:-held_out]), ("test.csv", names[-held_out:])):
        with (folder / file).open("w", newline="") as stream:
            csv.writer(stream).writerows([f"complete_skull/{name}_surf.npy"] for name in chosen)


def _write_skull(folder: Path, name: str, rng: np.random.Generator) -> None:
    radius = _make_shape(rng)
    _save(folder / "complete_skull", name, _sample_shell(radius, _sample_directions(_SKULL_POINTS, rng), rng))
    for defect, middle in _DEFECTS.items():
        is_inside, rim = _make_hole(middle, rng)
        for kind, count, wanted in (("defective_skull", _SKULL_POINTS, False), ("implant", _IMPLANT_POINTS, True)):
            directions_N3 = _sample_where(is_inside, count, rng, wanted=wanted)
            edge_N3 = rim(count // 10)
            points_N3 = np.concatenate(
                [
                    _sample_shell(radius, directions_N3[len(edge_N3) :], rng),
                    _MIDDLE + (edge_N3 * (radius(edge_N3) - rng.uniform(0, _THICKNESS, len(edge_N3)))[:, None]),
                ]
            )
            _save(folder / kind / defect, name, points_N3)


def _make_shape(rng: np.random.Generator) -> Radius:
    """Return the distance of the outer surface from the middle, as a function of directions (N, 3)."""
    axes_3 = rng.uniform([150, 180, 150], [180, 215, 180])
    middles_F3, heights_F = _sample_directions(_BUMPS, rng), rng.uniform(-8, 8, _BUMPS)

    def radius(directions_N3: Directions) -> NDArray[np.float64]:
        ellipsoid_N = 1 / np.linalg.norm(directions_N3 / axes_3, axis=1)
        bumps_N: NDArray[np.float64] = np.exp(6 * (directions_N3 @ middles_F3.T - 1)) @ heights_F
        return np.asarray(ellipsoid_N + bumps_N)

    return radius


def _make_hole(
    middle: tuple[float, float, float] | None, rng: np.random.Generator
) -> tuple[Callable[[Directions], NDArray[np.bool_]], Callable[[int], Directions]]:
    """Return a function that tells which directions are in the hole, and one that samples its edge."""
    axis_3 = np.array(middle) / np.linalg.norm(middle) if middle else _sample_directions(1, rng)[0]
    axis_3 = axis_3 + 0.15 * rng.standard_normal(3)
    axis_3[2] = abs(axis_3[2])
    axis_3 /= np.linalg.norm(axis_3)
    first_3 = np.cross(axis_3, [1.0, 0.0, 0.0] if abs(axis_3[0]) < 0.9 else [0.0, 1.0, 0.0])
    first_3 /= np.linalg.norm(first_3)
    second_3 = np.cross(axis_3, first_3)
    size, wave, waves, phase = rng.uniform(0.4, 0.65), rng.uniform(0, 0.12), rng.integers(2, 5), rng.uniform(0, 6.28)

    def edge(turn_N: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(size * (1 + wave * np.sin(waves * turn_N + phase)))

    def is_inside(directions_N3: Directions) -> NDArray[np.bool_]:
        turn_N = np.arctan2(directions_N3 @ second_3, directions_N3 @ first_3)
        return np.asarray(np.arccos(np.clip(directions_N3 @ axis_3, -1, 1)) < edge(turn_N))

    def sample_rim(count: int) -> Directions:
        turn_N1 = rng.uniform(-np.pi, np.pi, (count, 1))
        away_N1 = edge(turn_N1)
        around_N3 = np.cos(turn_N1) * first_3 + np.sin(turn_N1) * second_3
        return np.asarray(np.cos(away_N1) * axis_3 + np.sin(away_N1) * around_N3)

    return is_inside, sample_rim


def _sample_directions(count: int, rng: np.random.Generator) -> Directions:
    vectors_N3 = rng.standard_normal((count, 3))
    return np.asarray(vectors_N3 / np.linalg.norm(vectors_N3, axis=1, keepdims=True))


def _sample_where(
    is_inside: Callable[[Directions], NDArray[np.bool_]], count: int, rng: np.random.Generator, *, wanted: bool
) -> Directions:
    found = np.empty((0, 3))
    while len(found) < count:
        drawn_N3 = _sample_directions(4 * count, rng)
        found = np.concatenate([found, drawn_N3[is_inside(drawn_N3) == wanted]])
    return found[:count]


def _sample_shell(radius: Radius, directions_N3: Directions, rng: np.random.Generator) -> Points:
    """Sample points on the outer and the inner surface."""
    depth_N = _THICKNESS * rng.integers(0, 2, len(directions_N3))
    return np.asarray(_MIDDLE + directions_N3 * (radius(directions_N3) - depth_N)[:, None])


def _save(folder: Path, name: str, points_N3: Points) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / f"{name}_surf.npy", points_N3)
