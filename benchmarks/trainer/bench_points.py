"""The operations of PCDiff's network on points and voxels, and a whole training step, beside plain loops over points.

Times are the process's own (CPU time of one thread), so that other work on the computer counts less.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from unittest.mock import patch

import torch

from benchmarks.rounds import Benchmark, main
from benchmarks.trainer.against_loops import list_contenders
from trainer.recipes.pcdiff import layers
from trainer.recipes.pcdiff.neighbours import find_far_points, find_in_balls, interpolate
from trainer.recipes.pcdiff.network import PointVoxelNet
from trainer.recipes.pcdiff.settings import ModelSettings
from trainer.recipes.pcdiff.voxels import devoxelize, voxelize

# Shape legend: B batch, C channels, N points, M centers, K neighbours, R side of the grid.
ROUNDS = 3
BATCH, CHANNELS, POINTS, CENTERS, NEIGHBOURS, SIDE, RADIUS = 2, 16, 1024, 341, 16, 16, 0.5
STEP_POINTS = 384


def fill(benchmark: Benchmark) -> None:
    """Measure each operation, forward and backward where it has a gradient, then a step."""
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    coords_B3N = torch.randn(BATCH, 3, POINTS, generator=generator)
    grid_B3N = torch.rand(BATCH, 3, POINTS, generator=generator) * (SIDE - 1)
    centers_B3M, features_BCN = coords_B3N[:, :, :CENTERS], torch.randn(BATCH, CHANNELS, POINTS, generator=generator)
    voxels = torch.randn(BATCH, CHANNELS, SIDE, SIDE, SIDE, generator=generator)
    few_BCM = features_BCN[:, :, :CENTERS]
    pairs: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
        "voxelize": both(lambda op: backward(lambda x: op(x, grid_B3N, SIDE), features_BCN), loop_voxelize, voxelize),
        "devoxelize": both(lambda op: backward(lambda x: op(x, grid_B3N), voxels), loop_devoxelize, devoxelize),
        "far points": both(lambda op: op(coords_B3N, CENTERS), loop_far_points, find_far_points),
        "balls": both(lambda op: op(coords_B3N, centers_B3M, RADIUS, NEIGHBOURS), loop_balls, find_in_balls),
        "interpolate": both(
            lambda op: backward(lambda x: op(x, centers_B3M, coords_B3N), few_BCM), loop_interpolate, interpolate
        ),
    }
    for name, (plain, ours) in pairs.items():
        benchmark.measure(list_contenders(name, plain, ours))
    benchmark.measure(list_contenders("step", with_loops(step), step))
    benchmark.notes.append(
        f"{BATCH} clouds of {POINTS} points, {CHANNELS} channels, {SIDE}^3 voxels, {CENTERS} centers"
    )
    benchmark.notes.append(
        f"a step: forward and backward pass of a network of 1.8 million weights, {STEP_POINTS} points"
    )


def both(
    call: Callable[[Callable[..., torch.Tensor]], object],
    plain: Callable[..., torch.Tensor],
    ours: Callable[..., torch.Tensor],
) -> tuple[Callable[[], object], Callable[[], object]]:
    """Bind both versions of an operation to its inputs."""
    return lambda: call(plain), lambda: call(ours)


def backward(operation: Callable[[torch.Tensor], torch.Tensor], values: torch.Tensor) -> None:
    """Compute an operation and the gradient of its squared sum."""
    leaf = values.clone().requires_grad_()
    operation(leaf).square().sum().backward()  # type: ignore[no-untyped-call]  # torch's


def step() -> None:
    """Compute one step's gradients."""
    torch.manual_seed(0)
    model = PointVoxelNet(ModelSettings(width=0.25, voxels=0.5, neighbours=16, radius=0.6), points=STEP_POINTS)
    cloud_BN3 = torch.randn(BATCH, STEP_POINTS, 3)
    model(cloud_BN3[:, 48:], cloud_BN3[:, :48], torch.tensor([3] * BATCH)).square().sum().backward()


def with_loops(run: Callable[[], None]) -> Callable[[], None]:
    """Return the same step with plain loops in the layers."""

    def run_with_loops() -> None:
        with contextlib.ExitStack() as stack:
            for name, loop in _LOOPS.items():
                stack.enter_context(patch.object(layers, name, loop))
            run()

    return run_with_loops


def loop_voxelize(features_BCN: torch.Tensor, grid_B3N: torch.Tensor, side: int) -> torch.Tensor:
    """Collect the points of each voxel, and average them."""
    clouds = []
    for features_CN, grid_3N in zip(features_BCN, grid_B3N, strict=True):
        members: dict[tuple[int, ...], list[int]] = {}
        for point, place in enumerate(grid_3N.round().long().T.tolist()):
            members.setdefault(tuple(place), []).append(point)
        empty_C = torch.zeros(len(features_CN))
        places = itertools.product(range(side), repeat=3)
        means = [features_CN[:, members[each]].mean(1) if each in members else empty_C for each in places]
        clouds.append(torch.stack(means, 1).view(-1, side, side, side))
    return torch.stack(clouds)


def loop_devoxelize(voxels_BCRRR: torch.Tensor, grid_B3N: torch.Tensor) -> torch.Tensor:
    """Visit the eight voxels around each point."""
    side = voxels_BCRRR.shape[2]
    clouds = []
    for voxels_CRRR, grid_3N in zip(voxels_BCRRR, grid_B3N, strict=True):
        points = []
        for place in grid_3N.T.tolist():
            low = [min(int(each), max(side - 2, 0)) for each in place]
            total = torch.zeros(len(voxels_CRRR))
            for bits in itertools.product((0, 1), repeat=3):
                weight = 1.0
                for each, start, bit in zip(place, low, bits, strict=True):
                    weight *= each - start if bit else 1 - each + start
                x, y, z = (min(start + bit, side - 1) for start, bit in zip(low, bits, strict=True))
                total = total + weight * voxels_CRRR[:, x, y, z]
            points.append(total)
        clouds.append(torch.stack(points, 1))
    return torch.stack(clouds)


def loop_far_points(coords_B3N: torch.Tensor, count: int) -> torch.Tensor:
    """Compare each point with all chosen ones."""
    return torch.tensor([_choose_far(points_3N.T.tolist(), count) for points_3N in coords_B3N])


def loop_balls(coords_B3N: torch.Tensor, centers_B3M: torch.Tensor, radius: float, count: int) -> torch.Tensor:
    """Walk over the points until a center's ball is full."""
    clouds = []
    for points_3N, centers_3M in zip(coords_B3N, centers_B3M, strict=True):
        points, balls = points_3N.T.tolist(), []
        for center in centers_3M.T.tolist():
            inside = [number for number, point in enumerate(points) if _square(point, center) < radius**2][:count]
            first = inside[0] if inside else 0
            balls.append(inside + [first] * (count - len(inside)))
        clouds.append(balls)
    return torch.tensor(clouds)


def loop_interpolate(features_BCM: torch.Tensor, centers_B3M: torch.Tensor, coords_B3N: torch.Tensor) -> torch.Tensor:
    """Sort all centers by their distance from each point."""
    clouds = []
    for features_CM, centers_3M, points_3N in zip(features_BCM, centers_B3M, coords_B3N, strict=True):
        centers, points = centers_3M.T.tolist(), []
        for point in points_3N.T.tolist():
            nearest = sorted((max(_square(point, each), 1e-10), number) for number, each in enumerate(centers))[:3]
            weights = torch.tensor([1 / distance for distance, _ in nearest])
            near_C3 = features_CM[:, [number for _, number in nearest]]
            points.append((near_C3 * weights / weights.sum()).sum(1))
        clouds.append(torch.stack(points, 1))
    return torch.stack(clouds)


def _choose_far(points: list[list[float]], count: int) -> list[int]:
    chosen, nearest = [0], [float("inf")] * len(points)
    while len(chosen) < count:
        nearest = [min(old, _square(point, points[chosen[-1]])) for old, point in zip(nearest, points, strict=True)]
        chosen.append(max(range(len(points)), key=nearest.__getitem__))
    return chosen


def _square(one: list[float], other: list[float]) -> float:
    return sum((a - b) ** 2 for a, b in zip(one, other, strict=True))


_LOOPS: dict[str, Callable[..., torch.Tensor]] = {
    "voxelize": loop_voxelize,
    "devoxelize": loop_devoxelize,
    "find_far_points": loop_far_points,
    "find_in_balls": loop_balls,
    "interpolate": loop_interpolate,
}


def compare() -> Iterator[str]:
    """Name the operations whose two versions differ."""
    coords_B3N = torch.randn(2, 3, 60, generator=torch.Generator().manual_seed(1))
    grid_B3N = (coords_B3N - coords_B3N.amin()) / (coords_B3N.amax() - coords_B3N.amin()) * 3
    voxels, few_B3M = torch.randn(2, 3, 4, 4, 4), coords_B3N[:, :, :9]
    inputs: dict[str, tuple[object, ...]] = {
        "voxelize": (coords_B3N, grid_B3N, 4),
        "devoxelize": (voxels, grid_B3N),
        "find_far_points": (coords_B3N, 9),
        "find_in_balls": (coords_B3N, few_B3M, 0.8, 4),
        "interpolate": (few_B3M, few_B3M, coords_B3N),
    }
    for name, arguments in inputs.items():
        if not torch.allclose(_LOOPS[name](*arguments).float(), getattr(layers, name)(*arguments).float(), atol=1e-5):
            yield name


if __name__ == "__main__":
    assert not list(compare())
    main("points", "Points and voxels: PCDiff's operations beside plain loops", fill, rounds=ROUNDS)
