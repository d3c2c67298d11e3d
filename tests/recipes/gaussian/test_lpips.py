"""LPIPS with weights that the user gives, against NumPy and scipy in float64."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file

from tests.recipes.gaussian.scenes import train, write_scenes
from tests.trainer import harness
from trainer.base.errors import BadRequestError
from trainer.metrics.lpips import Lpips, build_lpips
from trainer.recipes.gaussian.losses import Views, compare, perceive, read_lpips
from trainer.recipes.gaussian.settings import LossSettings

Array = NDArray[np.float64]
Weights = dict[str, torch.Tensor]
# (number in torchvision's `features`, channels, kernel, stride), P: pooling, T: features that are compared.
ALEXNET: list[Any] = [(0, 64, 11, 4), "T", "P", (3, 192, 5, 1), "T", "P", (6, 384, 3, 1), "T", (8, 256, 3, 1), "T"]
ALEXNET += [(10, 256, 3, 1), "T"]
VGG16: list[Any] = [(0, 64, 3, 1), (2, 64, 3, 1), "T", "P", (5, 128, 3, 1), (7, 128, 3, 1), "T", "P"]
VGG16 += [(10, 256, 3, 1), (12, 256, 3, 1), (14, 256, 3, 1), "T", "P"]
VGG16 += [(17, 512, 3, 1), (19, 512, 3, 1), (21, 512, 3, 1), "T", "P"]
VGG16 += [(24, 512, 3, 1), (26, 512, 3, 1), (28, 512, 3, 1), "T"]
SLICES = {"alex": ([0, 3, 6, 8, 10], ALEXNET, 3), "vgg": ([0, 5, 10, 17, 24], VGG16, 2)}


def draw_weights(layers: list[Any]) -> tuple[Weights, Weights]:
    """Draw a network's weights, under torchvision's names, and the heads', under those of the package lpips."""
    generator, channels = torch.Generator().manual_seed(0), 3
    network: Weights = {"classifier.1.weight": torch.zeros(2, 2)}
    heads: Weights = {}
    for layer in layers:
        if layer == "T":
            heads[f"lin{len(heads)}.model.1.weight"] = torch.rand(1, channels, 1, 1, generator=generator)
        elif layer != "P":
            number, width, kernel, _ = layer
            spread = (2 / (channels * kernel**2)) ** 0.5
            weight = spread * torch.randn(width, channels, kernel, kernel, generator=generator)
            network[f"features.{number}.weight"] = weight
            network[f"features.{number}.bias"] = 0.1 * torch.randn(width, generator=generator)
            channels = width
    return network, heads


def reference(weights: Weights, layers: list[Any], window: int, image: Array) -> list[Array]:
    """Return the unit feature vectors of one picture, (C, H, W) each."""
    mean, deviation = np.array([-0.030, -0.088, -0.188]), np.array([0.458, 0.448, 0.450])
    values, found = ((2 * image - 1).transpose(1, 2, 0) - mean) / deviation, []
    values = values.transpose(2, 0, 1)
    for layer in layers:
        if layer == "T":
            found.append(values / (np.sqrt((values**2).sum(0)) + 1e-10))
        elif layer == "P":
            values = np.lib.stride_tricks.sliding_window_view(values, (window, window), (1, 2))[:, ::2, ::2].max((3, 4))
        else:
            number, _, kernel, stride = layer
            weight, bias = (weights[f"features.{number}.{part}"].double().numpy() for part in ("weight", "bias"))
            border = {11: 2, 5: 2, 3: 1}[kernel]
            padded = np.pad(values, ((0, 0), (border, border), (border, border)))
            windows = np.lib.stride_tricks.sliding_window_view(padded, (kernel, kernel), (1, 2))[:, ::stride, ::stride]
            values = np.maximum(np.tensordot(weight, windows, ((1, 2, 3), (0, 3, 4))) + bias[:, None, None], 0)
    return found


@pytest.mark.parametrize(("name", "pixels"), [("alex", 40), ("vgg", 19)])
def test_lpips_is_that_of_numpy(name: str, pixels: int) -> None:
    """For each picture of a batch; also by the names of the package's own state dict."""
    slices, layers, window = SLICES[name]
    network, heads = draw_weights(layers)
    images = np.random.default_rng(1).uniform(size=(2, 2, 3, pixels, pixels))
    expected = []
    for pair in images.transpose(1, 0, 2, 3, 4):
        ours, theirs = (reference(network, layers, window, image) for image in pair)
        parts = [
            ((left - right) ** 2 * head.double().numpy()[0]).sum(0).mean()
            for left, right, head in zip(ours, theirs, heads.values(), strict=True)
        ]
        expected.append(sum(parts))
    lpips = build_lpips(network | heads, "here").double()
    np.testing.assert_allclose(lpips(*map(torch.tensor, images)), expected, rtol=1e-6)
    whole = {rename(key, slices): tensor for key, tensor in network.items()} | heads
    whole |= {"scaling_layer.shift": torch.zeros(1, 3, 1, 1), "lins.0.model.1.weight": heads["lin0.model.1.weight"]}
    np.testing.assert_allclose(build_lpips(whole, "here").double()(*map(torch.tensor, images)), expected, rtol=1e-6)


def rename(key: str, slices: list[int]) -> str:
    part, number, kind = key.split(".")
    if part != "features":
        return key
    return f"net.slice{sum(int(number) >= first for first in slices)}.{number}.{kind}"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """AlexNet's file and the heads', one of torch.save and one of safetensors."""
    folder = tmp_path_factory.mktemp("weights")
    network, heads = draw_weights(ALEXNET)
    torch.save(network, folder / "alexnet-owt-7be5be79.pth")
    save_file(heads, folder / "alex.safetensors")
    return str(folder / "alexnet-owt-7be5be79.pth"), str(folder / "alex.safetensors")


def open_lpips(files: tuple[str, ...]) -> Lpips:
    lpips = read_lpips(files)
    assert lpips is not None
    return lpips


def test_loss_has_a_tenth_of_lpips_where_weights_are_given(files: tuple[str, str]) -> None:
    """At 128 pixels, of the picture within [0, 1]."""
    ours, theirs = (Views(torch.rand(2, 3, 24, 24) * size, torch.rand(2, 24, 24)) for size in (1.2, 1))
    lpips = open_lpips(files)
    added = compare(ours, theirs, LossSettings(), lpips) - compare(ours, theirs, LossSettings())
    expected = perceive(lpips, ours.images.clamp(0, 1), theirs.images)
    assert float(expected.min()) > 0.01
    torch.testing.assert_close(added, 0.1 * expected, atol=1e-5, rtol=1e-4)
    assert torch.equal(compare(ours, theirs, LossSettings(lpips=0), lpips), compare(ours, theirs, LossSettings()))


def test_lpips_is_the_same_under_autocast(files: tuple[str, str]) -> None:
    pair, lpips = torch.rand(2, 1, 3, 32, 32), open_lpips(files)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rounded = perceive(lpips, *pair)
    torch.testing.assert_close(rounded, perceive(lpips, *pair))


def test_weights_that_do_not_fit_are_refused(files: tuple[str, str], tmp_path: Path) -> None:
    """One of the two files alone, heads of the other network, a file that isn't there."""
    torch.save(draw_weights(VGG16)[1], tmp_path / "vgg.pth")
    for given in (files[:1], files[1:], (files[0], str(tmp_path / "vgg.pth"))):
        with pytest.raises(BadRequestError, match="no weights of LPIPS") as caught:
            read_lpips(given)
        assert "alex.pth" in caught.value.fix
    with pytest.raises(BadRequestError, match=r"none\.pth does not load"):
        read_lpips((str(tmp_path / "none.pth"),))


def test_run_with_weights_measures_lpips(files: tuple[str, str], tmp_path: Path) -> None:
    """Its weights are no part of the model."""
    data = write_scenes(tmp_path / "data", 6)
    settings = ("epochs=2", "batch_size=5", "data.held_out=0.17", "hfts.enabled=true", "hfts.pixels=16")
    assert train(tmp_path / "output", data, *settings, f"loss.lpips_weights={','.join(files)}") == 0
    rows = [row for row in harness.read_rows(tmp_path / "output") if "val_psnr" in row]
    assert all(row["val_lpips"] > 0 for row in rows)
    assert (tmp_path / "output" / "model.safetensors").stat().st_size < 4 << 20
