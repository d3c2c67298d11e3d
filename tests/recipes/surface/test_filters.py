"""The input channels, against scipy.ndimage in float64."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import ndimage

from tests.recipes.operations import CountedOperations
from trainer.recipes.surface.filters import Filters
from trainer.report.export import export_onnx

VOLUME = np.random.default_rng(3).random((14, 17, 20))


def scipy_channels(volume: NDArray[np.float64]) -> NDArray[np.float64]:
    """The six channels by scipy's filters: zeros beyond the border, Gaussians that end after two deviations."""
    wide = {s: ndimage.gaussian_filter(volume, s, truncate=2, mode="constant") for s in (1.0, 1.5, 2.0, 3.0)}
    smooth = wide[1.0]
    dz, dy, dx = (ndimage.correlate1d(smooth, [-0.5, 0, 0.5], axis, mode="constant") for axis in range(3))
    trace = sum(ndimage.correlate1d(smooth, [1.0, -2, 1], axis, mode="constant") for axis in range(3))
    size = np.sqrt(dz**2 + dy**2 + dx**2)
    ratio = np.minimum(np.abs(dy) / (np.abs(dx) + 1e-3), 20)
    return np.stack([volume, smooth - wide[1.5], wide[2.0] - wide[3.0], trace, size, ratio])


@pytest.mark.parametrize("channel", range(6))
def test_channel_equals_scipys_filters(channel: int) -> None:
    """Raw, two differences of Gaussians, Hessian trace, gradient magnitude, anisotropy."""
    ours = Filters().double().channels(torch.from_numpy(VOLUME)[None, None])[0].numpy()
    # The kernels are float32.
    np.testing.assert_allclose(ours[channel], scipy_channels(VOLUME)[channel], atol=2e-5)


def test_each_channel_is_standardised_within_its_sample() -> None:
    """A sample that is ten times as bright has the same input, but for the anisotropy's floor."""
    volume = torch.from_numpy(VOLUME)[None, None].float()
    channels = Filters()(torch.cat([volume, 10 * volume]))
    assert torch.allclose(channels.mean((2, 3, 4)), torch.zeros(2, 6), atol=1e-4)
    assert torch.allclose(channels.std((2, 3, 4)), torch.ones(2, 6), atol=1e-3)
    assert torch.allclose(channels[0, :5], channels[1, :5], atol=1e-3)


def test_filters_compute_in_float32_under_autocast() -> None:
    """In 16 bits the differences of Gaussians would be rounding noise."""
    volume = torch.from_numpy(VOLUME)[None, None].float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        channels = Filters()(volume)
    assert channels.dtype == torch.float32
    assert torch.equal(channels, Filters()(volume))


def test_filters_have_no_weights_and_no_entries_in_checkpoints() -> None:
    """The original project's checkpoints have none either."""
    assert not Filters().state_dict()
    assert not list(Filters().parameters())


def test_constant_volume_gives_finite_channels_also_in_onnx(tmp_path: Path) -> None:
    """A deviation of 0 doesn't divide by 0; the exporter once dropped the small number that prevented it."""
    assert torch.isfinite(Filters()(torch.zeros(1, 1, 9, 9, 9))).all()
    assert export_onnx(Filters(), (torch.zeros(2, 1, 9, 9, 9),), tmp_path / "filters.onnx") < 1e-3


def test_no_convolution_rounds_the_filters_to_tf32() -> None:
    """`compute.tf32`, which the recipe sets, lets convolutions and matrix products on a GPU round to 10 bits."""
    with CountedOperations() as operations:
        Filters()(torch.rand(1, 1, 12, 12, 12))
    assert operations.calls["addcmul"] > 0
    assert not {name for name in operations.calls if "conv" in name or name.endswith("mm")}
