"""The ResNet: torchvision's names, shapes and sizes, and what it computes."""

from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from torch.nn import functional

from trainer.recipes.imagenet.network import resnet

# Shape legend: B batch, C channels, H height, W width.
TORCHVISION = Path(__file__).with_name("resnet50.txt")
"""Names and shapes of torchvision's resnet50, as its weights resnet50-0676ba61.pth have them."""


def test_the_50_layers_have_torchvisions_names_and_shapes() -> None:
    with torch.device("meta"):
        model = resnet(50, 1000)
    ours = {name: "x".join(map(str, tensor.shape)) or "scalar" for name, tensor in model.state_dict().items()}
    assert ours == dict(line.split() for line in TORCHVISION.read_text().splitlines())
    assert len(ours) == 320
    assert sum(weight.numel() for weight in model.parameters()) == 25_557_032


def test_the_18_layers_have_torchvisions_size_and_return_scores() -> None:
    model = resnet(18, 1000).eval()
    assert sum(weight.numel() for weight in model.parameters()) == 11_689_512
    assert model(torch.zeros(2, 3, 32, 32)).shape == (2, 1000)


def test_scores_are_those_of_the_papers_layers_written_out() -> None:
    """Every stride and padding, the shortcuts and the pooling: computed from the named weights alone, in float64."""
    torch.manual_seed(0)
    model = resnet(50, 10).double().eval()
    weights = {name: _lively(name, tensor) for name, tensor in model.state_dict().items()}
    model.load_state_dict(weights)
    pictures_BCHW = torch.randn(2, 3, 64, 96, dtype=torch.float64)
    with torch.no_grad():
        torch.testing.assert_close(model(pictures_BCHW), compute_scores(weights, pictures_BCHW))


def test_a_block_begins_as_its_shortcut() -> None:
    """Goyal et al. 2017, section 5.1: the last normalisation of each block has weight 0."""
    weights = resnet(50, 10).state_dict()
    last = [weights[name] for name in weights if name.endswith("bn3.weight")]
    assert len(last) == 16
    assert all(not weight.any() for weight in last)
    assert weights["bn1.weight"].min() == 1


@pytest.mark.parametrize("name", ["layer1.0.conv2", "layer4.2.conv3", "conv1"])
def test_convolutions_begin_with_hes_deviation(name: str) -> None:
    """Square root of 2 / (kernel area x output channels): He et al. 2015, section 2.2, backward case."""
    weight = resnet(50, 10).state_dict()[f"{name}.weight"]
    expected = (2 / (weight.shape[0] * weight.shape[2] * weight.shape[3])) ** 0.5
    assert float(weight.std()) == pytest.approx(expected, rel=0.05)


def compute_scores(weights: Mapping[str, torch.Tensor], x_BCHW: torch.Tensor) -> torch.Tensor:
    """Compute ResNet-50 version 1.5 from its weights, with functions only."""

    def conv_norm(x: torch.Tensor, conv: str, norm: str, *, stride: int = 1, padding: int = 0) -> torch.Tensor:
        x = functional.conv2d(x, weights[f"{conv}.weight"], stride=stride, padding=padding)
        mean, variance, gain, shift = (
            weights[f"{norm}.{part}"][:, None, None] for part in ("running_mean", "running_var", "weight", "bias")
        )
        return (x - mean) / (variance + 1e-5).sqrt() * gain + shift

    x = conv_norm(x_BCHW, "conv1", "bn1", stride=2, padding=3).clamp(min=0)
    x = functional.max_pool2d(x, 3, stride=2, padding=1)
    for layer, blocks in enumerate((3, 4, 6, 3), 1):
        for number in range(blocks):
            name, stride = f"layer{layer}.{number}", 2 if layer > 1 and number == 0 else 1
            y = conv_norm(x, f"{name}.conv1", f"{name}.bn1").clamp(min=0)
            y = conv_norm(y, f"{name}.conv2", f"{name}.bn2", stride=stride, padding=1).clamp(min=0)
            y = conv_norm(y, f"{name}.conv3", f"{name}.bn3")
            if number == 0:
                x = conv_norm(x, f"{name}.downsample.0", f"{name}.downsample.1", stride=stride)
            x = (x + y).clamp(min=0)
    return x.mean(dim=(2, 3)) @ weights["fc.weight"].T + weights["fc.bias"]


def _lively(name: str, tensor: torch.Tensor) -> torch.Tensor:
    """Give normalisation layers other values than 0 and 1."""
    return torch.rand_like(tensor) + 0.5 if "bn" in name and tensor.is_floating_point() else tensor
