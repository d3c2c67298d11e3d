"""The Poisson surface against closed forms, a direct spectral solution in numpy, and finite differences."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.autograd import gradcheck

from tests.recipes.voxelization.references import draw, splat_in_a_loop
from trainer.metrics.volumes import dice
from trainer.recipes.voxelization.poisson import PoissonSolver

# Shape legend: B batch, N points, G nodes a side.
SIZE = 8


def list_nodes(size: int) -> np.ndarray:
    """Return the positions of a grid's nodes, (3, G, G, G)."""
    axis_G = np.arange(size) / size
    return np.stack(np.meshgrid(axis_G, axis_G, axis_G, indexing="ij"))


@pytest.mark.parametrize("sigma", [0.0, 2.0])
def test_function_is_recovered_from_its_gradient(sigma: float) -> None:
    """Each wave is damped by exp(-2 sigma^2 |u|^2 / r^2), Shape As Points' equation 5."""
    x, y, z = list_nodes(16)
    waves = {(1, 0, 0): np.cos(2 * np.pi * x), (0, 2, 1): np.sin(2 * np.pi * (2 * y + z))}
    slopes = {(1, 0, 0): -np.sin(2 * np.pi * x), (0, 2, 1): np.cos(2 * np.pi * (2 * y + z))}
    gradient_3GGG = sum(2 * np.pi * np.array(u)[:, None, None, None] * slopes[u] for u in waves)
    damping = {u: np.exp(-2 * sigma**2 * np.dot(u, u) / 16**2) for u in waves}
    expected_GGG = sum(damping[u] * waves[u] for u in waves)
    solver = PoissonSolver(16, sigma=sigma).double()
    found_GGG = solver.integrate(torch.from_numpy(gradient_3GGG)[None])[0].numpy()
    assert np.abs(found_GGG - expected_GGG).max() < 1e-6


def solve_directly(points_N3: np.ndarray, normals_N3: np.ndarray, size: int, sigma: float) -> np.ndarray:
    """Solve in numpy with full transforms and loops: the scaled function, (G, G, G)."""
    field_3GGG = splat_in_a_loop(points_N3, normals_N3, size)
    u_GGG3 = np.stack(np.meshgrid(*[np.fft.fftfreq(size, 1 / size)] * 3, indexing="ij"), -1)
    square_GGG = (u_GGG3**2).sum(-1)
    derivative_GGG3 = 2j * np.pi * np.where(np.abs(u_GGG3) == size // 2, 0, u_GGG3)
    spectrum_GGG3 = np.moveaxis(np.fft.fftn(field_3GGG, axes=(1, 2, 3)), 0, -1)
    divergence_GGG = (derivative_GGG3 * spectrum_GGG3).sum(-1) * np.exp(-2 * sigma**2 * square_GGG / size**2)
    laplacian_GGG = -4 * np.pi**2 * square_GGG
    laplacian_GGG[0, 0, 0] = np.inf
    raw_GGG = np.fft.ifftn(divergence_GGG / laplacian_GGG)
    assert np.abs(raw_GGG.imag).max() < 1e-12
    weights = [splat_in_a_loop(point[None], np.ones((1, 1)), size)[0] for point in points_N3]
    shifted_GGG = raw_GGG.real - np.mean([(weight * raw_GGG.real).sum() for weight in weights])
    scaled_GGG: np.ndarray = shifted_GGG / abs(shifted_GGG[0, 0, 0]) / 2
    return scaled_GGG


def test_surface_is_that_of_a_direct_solution() -> None:
    """For two clouds with any normals; the solver's constants are float32, whatever the points are."""
    points_BN3, normals_BN3 = draw(2, 40, 3), draw(2, 40, 3, seed=1) - 0.5
    found_BGGG = PoissonSolver(SIZE, sigma=2.0).double()(points_BN3, normals_BN3)
    for found, points, normals in zip(found_BGGG, points_BN3, normals_BN3, strict=True):
        expected = solve_directly(points.numpy(), normals.numpy(), SIZE, 2.0)
        assert np.abs(found.numpy() - expected).max() < 1e-5 * np.abs(expected).max()


def test_indicator_of_a_sphere_is_recovered() -> None:
    """From 20,000 points with outward normals: negative inside, positive outside, +0.5 at the corner."""
    outward_N3 = torch.randn(20_000, 3, generator=torch.Generator().manual_seed(0))
    outward_N3 = outward_N3 / outward_N3.norm(dim=1, keepdim=True)
    found_GGG = PoissonSolver(32, sigma=2.0)((0.5 + 0.3 * outward_N3)[None], outward_N3[None])[0]
    distance_GGG = torch.from_numpy(np.linalg.norm(list_nodes(32) - 0.5, axis=0))
    assert (found_GGG[distance_GGG < 0.3 - 1 / 32] < 0).all()
    assert (found_GGG[distance_GGG > 0.3 + 1 / 32] > 0).all()
    assert dice((found_GGG < 0)[None], (distance_GGG < 0.3)[None]).item() > 0.98
    assert found_GGG[0, 0, 0].item() == pytest.approx(0.5)
    assert found_GGG[16, 16, 16].item() == pytest.approx(-0.5, abs=0.1)


def test_surface_goes_through_the_points_on_average() -> None:
    """The mean at the points is subtracted."""
    points_BN3, normals_BN3 = draw(1, 30, 3), draw(1, 30, 3, seed=1) - 0.5
    found_GGG = PoissonSolver(SIZE, sigma=1.0).double()(points_BN3, normals_BN3)[0].numpy()
    at_points = [(splat_in_a_loop(p[None], np.ones((1, 1)), SIZE)[0] * found_GGG).sum() for p in points_BN3[0].numpy()]
    assert np.mean(at_points) == pytest.approx(0, abs=1e-9 * np.abs(at_points).max())


def test_gradients_are_those_of_finite_differences() -> None:
    """With respect to points and normals."""
    points_BN3, normals_BN3 = draw(2, 6, 3).requires_grad_(), (draw(2, 6, 3, seed=1) - 0.5).requires_grad_()
    assert gradcheck(PoissonSolver(4, sigma=1.0).double(), (points_BN3, normals_BN3))


def test_half_precision_ends_before_the_transforms() -> None:
    """Under autocast, and where the decoders return bfloat16."""
    solver, points_BN3, normals_BN3 = PoissonSolver(SIZE, sigma=2.0), draw(1, 40, 3).float(), draw(1, 40, 3).float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found_BGGG = solver(points_BN3.bfloat16(), normals_BN3.bfloat16())
    assert found_BGGG.dtype == torch.float32
    assert torch.equal(found_BGGG, solver(points_BN3.bfloat16().float(), normals_BN3.bfloat16().float()))


def test_normals_that_vanish_give_zeros() -> None:
    """Not NaN: the corner that scales is 0 as well."""
    assert PoissonSolver(SIZE, sigma=2.0)(draw(1, 5, 3).float(), torch.zeros(1, 5, 3)).abs().max() == 0
