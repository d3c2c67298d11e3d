"""The loss, SSIM and PSNR against scipy and NumPy in float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter

from trainer.metrics.images import psnr, ssim
from trainer.recipes.gaussian.losses import Views, compare, resize, standardise
from trainer.recipes.gaussian.settings import LossSettings

Array = NDArray[np.float64]


def reference_ssim(ours: Array, theirs: Array) -> float:
    """SSIM of one channel by scipy's Gaussian filter (11 taps), over all whole windows."""

    def blur(image: Array) -> Array:
        filtered: Array = gaussian_filter(image, 1.5, truncate=3.5)[5:-5, 5:-5]
        return filtered

    mean_x, mean_y = blur(ours), blur(theirs)
    variance_x, variance_y = blur(ours * ours) - mean_x**2, blur(theirs * theirs) - mean_y**2
    covariance = blur(ours * theirs) - mean_x * mean_y
    luminance = (2 * mean_x * mean_y + 1e-4) / (mean_x**2 + mean_y**2 + 1e-4)
    structure = (2 * covariance + 9e-4) / (variance_x + variance_y + 9e-4)
    return float((luminance * structure).mean())


def draw_pair(pixels: int, seed: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    ours = gaussian_filter(rng.uniform(size=(2, 3, pixels, pixels)), (0, 0, 1, 1))
    return ours, np.clip(ours + rng.normal(scale=0.05, size=ours.shape), 0, 1)


@pytest.mark.parametrize("pixels", [11, 16, 33])
def test_ssim_is_that_of_scipy(pixels: int) -> None:
    """For each picture of a batch, as the mean of its channels."""
    ours, theirs = draw_pair(pixels, pixels)
    expected = [
        np.mean([reference_ssim(x, y) for x, y in zip(*pair, strict=True)]) for pair in zip(ours, theirs, strict=True)
    ]
    np.testing.assert_allclose(ssim(torch.tensor(ours), torch.tensor(theirs)), expected, atol=1e-10)
    single = ssim(torch.tensor(ours).float(), torch.tensor(theirs).float())
    np.testing.assert_allclose(single, expected, atol=1e-4)


def test_ssim_of_the_same_picture_is_1_and_of_flat_ones_the_closed_form() -> None:
    """Flat pictures differ in luminance alone."""
    ours, _ = draw_pair(20, 0)
    np.testing.assert_allclose(ssim(torch.tensor(ours), torch.tensor(ours)), 1)
    flat = ssim(torch.full((1, 3, 16, 16), 0.2), torch.full((1, 3, 16, 16), 0.6))
    assert float(flat) == pytest.approx((2 * 0.2 * 0.6 + 1e-4) / (0.2**2 + 0.6**2 + 1e-4), abs=1e-5)


def test_ssim_and_psnr_are_not_rounded_to_16_bits() -> None:
    """Under autocast, and of pictures in bfloat16: flat .80 and .79 differ in luminance alone."""
    flat = torch.full((1, 3, 16, 16), 0.80), torch.full((1, 3, 16, 16), 0.79)
    rounded = tuple(each.bfloat16() for each in flat)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert float(ssim(*flat)) == pytest.approx((2 * 0.80 * 0.79 + 1e-4) / (0.80**2 + 0.79**2 + 1e-4), abs=1e-5)
        assert float(psnr(*flat)) == pytest.approx(40, abs=1e-3)
        assert float(ssim(*rounded)) == pytest.approx(float(ssim(*(each.float() for each in rounded))), abs=1e-5)
        assert psnr(*rounded).dtype is torch.float32


def test_ssim_has_the_gradient_of_differences() -> None:
    ours, theirs = draw_pair(12, 1)
    pair = torch.tensor(ours[:1], requires_grad=True), torch.tensor(theirs[:1])
    assert torch.autograd.gradcheck(ssim, pair)


def test_pictures_smaller_than_the_window_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 11 x 11"):
        ssim(torch.zeros(1, 3, 10, 30), torch.zeros(1, 3, 10, 30))


def test_psnr_is_the_closed_form() -> None:
    """An error of 0.1 everywhere has 20 dB; no error has 100."""
    black = torch.zeros(2, 3, 4, 4)
    torch.testing.assert_close(psnr(black + 0.1, black), torch.full((2,), 20.0))
    torch.testing.assert_close(psnr(black, black), torch.full((2,), 100.0))


def test_loss_is_the_weighted_sum() -> None:
    """L1 + 0.5 (1 - SSIM) + 0.1 L1 of depths, each with mean 0 and deviation 1."""
    ours, theirs = draw_pair(16, 2)
    depths = np.random.default_rng(0).uniform(size=(2, 2, 16, 16))
    views = [
        Views(torch.tensor(image), torch.tensor(depth)) for image, depth in zip((ours, theirs), depths, strict=True)
    ]
    means = depths.mean((2, 3), keepdims=True)
    standard = (depths - means) / depths.std((2, 3), keepdims=True, ddof=1)
    expected = np.abs(ours - theirs).mean((1, 2, 3))
    expected += 0.5 * (1 - ssim(torch.tensor(ours), torch.tensor(theirs)).numpy())
    expected += 0.1 * np.abs(standard[0] - standard[1]).mean((1, 2))
    np.testing.assert_allclose(compare(views[0], views[1], LossSettings()), expected, rtol=1e-10)
    only_colours = compare(views[0], views[1], LossSettings(ssim=0, depth=0))
    np.testing.assert_allclose(only_colours, np.abs(ours - theirs).mean((1, 2, 3)))


def test_flat_depth_has_a_finite_gradient() -> None:
    """A picture of which nothing is seen yet."""
    depth = torch.zeros(1, 4, 4, requires_grad=True)
    torch.autograd.backward(standardise(depth).abs().sum())
    assert depth.grad is not None
    assert torch.isfinite(depth.grad).all()


def test_depths_are_resized_to_the_pictures() -> None:
    assert resize(torch.rand(2, 1, 256, 256), 64).shape == (2, 64, 64)
