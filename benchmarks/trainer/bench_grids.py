"""Voxelization's operations on points and grids, and a whole training step, beside plain loops over points.

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
from trainer.recipes.voxelization import network as network_module
from trainer.recipes.voxelization import poisson
from trainer.recipes.voxelization.grids import (
    cell_means,
    index_cells,
    interpolate_features,
    interpolate_periodic,
    local_max,
    splat,
)
from trainer.recipes.voxelization.network import SurfaceNet
from trainer.recipes.voxelization.settings import ModelSettings

# Shape legend: B batch, N points, C channels, G cells or nodes a side.
ROUNDS = 3
BATCH, POINTS, CHANNELS, CELLS, GRID = 2, 512, 32, 8, 16
STEP_POINTS = 128


def fill(benchmark: Benchmark) -> None:
    """Measure each operation, forward and backward, then a step."""
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    points_BN3 = torch.rand(BATCH, POINTS, 3, generator=generator)
    features_BNC = torch.randn(BATCH, POINTS, CHANNELS, generator=generator)
    grid_BCGGG = torch.randn(BATCH, CHANNELS, CELLS, CELLS, CELLS, generator=generator)
    field_B1GGG, normals_BN3 = torch.randn(BATCH, 1, GRID, GRID, GRID, generator=generator), features_BNC[..., :3]
    cells_BN = index_cells(points_BN3, CELLS)
    pairs: dict[str, tuple[Operation, Operation, Callable[[Operation], torch.Tensor]]] = {
        "local maxima": (loop_local_max, local_max, lambda op: backward(op, features_BNC, cells_BN, CELLS**3)),
        "cell means": (loop_cell_means, cell_means, lambda op: backward(op, features_BNC, cells_BN, CELLS**3)),
        "splat": (loop_splat, splat, lambda op: backward(op, points_BN3, normals_BN3, GRID)),
        "features at points": (
            loop_interpolate_features,
            interpolate_features,
            lambda op: backward(op, grid_BCGGG, points_BN3),
        ),
        "surface at points": (
            loop_interpolate_periodic,
            interpolate_periodic,
            lambda op: backward(op, field_B1GGG, points_BN3),
        ),
    }
    for name, (plain, ours, call) in pairs.items():
        require_equal(name, call, plain, ours)
        benchmark.measure(list_contenders(name, bind(call, plain), bind(call, ours)))
    network = SurfaceNet(ModelSettings(cells=CELLS, levels=2), grid=GRID, sigma=2.0)
    few_BN3 = points_BN3[:, :STEP_POINTS]
    benchmark.measure(
        list_contenders("step", lambda: step_with_loops(network, few_BN3), lambda: step(network, few_BN3))
    )
    benchmark.notes.append(
        f"{BATCH} clouds of {POINTS} points, {CHANNELS} channels, {CELLS}^3 cells, {GRID}^3 nodes; forward and backward"
    )
    benchmark.notes.append(f"a step: the network with {STEP_POINTS} points a cloud, of each of which it makes 7")


Operation = Callable[..., torch.Tensor]


def bind(call: Callable[[Operation], object], operation: Operation) -> Callable[[], object]:
    """Bind a measured call to one version of its operation."""
    return lambda: call(operation)


def backward(operation: Operation, first: torch.Tensor, *others: object) -> torch.Tensor:
    """Compute an operation, and return the gradient of its sum of squares for its first input."""
    leaf = first.detach().requires_grad_()
    (gradient,) = torch.autograd.grad(operation(leaf, *others).square().sum(), leaf)
    return gradient


def require_equal(name: str, call: Callable[[Operation], torch.Tensor], plain: Operation, ours: Operation) -> None:
    """Refuse to compare operations that compute different gradients."""
    expected, found = call(plain), call(ours)
    if not torch.allclose(found, expected, rtol=1e-3, atol=1e-3 * float(expected.abs().max())):
        raise ValueError(f"{name}: the loop and the operation differ")


def step(network: SurfaceNet, points_BN3: torch.Tensor) -> None:
    """Compute the gradient of all weights."""
    network.zero_grad()
    network(points_BN3).square().mean().backward()


def step_with_loops(network: SurfaceNet, points_BN3: torch.Tensor) -> None:
    """Compute the same with the plain loops in place of the operations."""
    loops = {
        network_module: {
            "local_max": loop_local_max,
            "cell_means": loop_cell_means,
            "interpolate_features": loop_interpolate_features,
        },
        poisson: {"splat": loop_splat, "interpolate_periodic": loop_interpolate_periodic},
    }
    with contextlib.ExitStack() as stack:
        for module, operations in loops.items():
            for name, operation in operations.items():
                stack.enter_context(patch.object(module, name, operation))
        step(network, points_BN3)


def loop_local_max(features_BNC: torch.Tensor, cells_BN: torch.Tensor, _count: int) -> torch.Tensor:
    """Look for each point's mates in its cell."""
    rows = [
        torch.stack([features_NC[cells_N == cell].amax(0) for cell in cells_N])
        for features_NC, cells_N in zip(features_BNC, cells_BN, strict=True)
    ]
    return torch.stack(rows)


def loop_cell_means(features_BNC: torch.Tensor, cells_BN: torch.Tensor, count: int) -> torch.Tensor:
    """Add up point by point, and count."""
    means = []
    for features_NC, cells_N in zip(features_BNC, cells_BN, strict=True):
        sums = [features_NC.new_zeros(features_NC.shape[1])] * count
        points = [0] * count
        for feature_C, cell in zip(features_NC, cells_N.tolist(), strict=True):
            sums[cell] = sums[cell] + feature_C
            points[cell] += 1
        means.append(torch.stack([total / max(1, number) for total, number in zip(sums, points, strict=True)], 1))
    return torch.stack(means)


def loop_splat(points_BN3: torch.Tensor, values_BNC: torch.Tensor, size: int) -> torch.Tensor:
    """Add each point's values to its eight nodes, one after another."""
    grids = []
    for points_N3, values_NC in zip(points_BN3, values_BNC, strict=True):
        grid_GC = values_NC.new_zeros(size**3, values_NC.shape[1])
        for point_3, value_C in zip(points_N3, values_NC, strict=True):
            for node, weight in list_corners(point_3 * size, size):
                grid_GC[node] += weight * value_C
        grids.append(grid_GC.T.unflatten(1, (size,) * 3))
    return torch.stack(grids)


def loop_interpolate_periodic(grid_BCGGG: torch.Tensor, points_BN3: torch.Tensor) -> torch.Tensor:
    """Weigh the nodes around each point, one point after another."""
    return loop_look_up(grid_BCGGG, points_BN3 * grid_BCGGG.shape[-1])


def loop_interpolate_features(grid_BCGGG: torch.Tensor, points_BN3: torch.Tensor) -> torch.Tensor:
    """Do the same in the order and the scale of feature grids."""
    return loop_look_up(grid_BCGGG, points_BN3.clamp(0.0, 1 - 1e-5).flip(-1) * (grid_BCGGG.shape[-1] - 1))


def loop_look_up(grid_BCGGG: torch.Tensor, positions_BN3: torch.Tensor) -> torch.Tensor:
    """Weigh the nodes around each position, (B, N, C)."""
    size = grid_BCGGG.shape[-1]
    rows = []
    for grid_CG, positions_N3 in zip(grid_BCGGG.flatten(2), positions_BN3, strict=True):
        found = [sum(weight * grid_CG[:, node] for node, weight in list_corners(at, size)) for at in positions_N3]
        rows.append(torch.stack([torch.as_tensor(each) for each in found]))
    return torch.stack(rows)


def list_corners(position_3: torch.Tensor, size: int) -> Iterator[tuple[int, torch.Tensor]]:
    """Yield the flat indices of the eight nodes around a position, and their weights."""
    low = [int(value) for value in position_3.tolist()]
    part_3 = position_3 - torch.tensor(low)
    for steps in itertools.product((0, 1), repeat=3):
        x, y, z = ((first + more) % size for first, more in zip(low, steps, strict=True))
        shares = [part if more else 1 - part for part, more in zip(part_3, steps, strict=True)]
        yield (x * size + y) * size + z, shares[0] * shares[1] * shares[2]


if __name__ == "__main__":
    main("grids", "Points and grids: voxelization's operations beside plain loops", fill, rounds=ROUNDS)
