"""The three networks: their sizes, the shapes that they return, and which patches they take."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from tests.recipes.operations import CountedOperations
from trainer.base.errors import BadRequestError
from trainer.recipes.surface.networks import Variant, check_patch, enlarge, list_blocks, make_network


@pytest.mark.parametrize(
    ("variant", "base_filters", "parameters"), [("v1", 32, 27_022_179), ("v2", 32, 27_023_532), ("v3", 16, 15_194_935)]
)
def test_networks_have_the_published_numbers_of_parameters(
    variant: Variant, base_filters: int, parameters: int
) -> None:
    """They are the original project's; on torch's meta device no weight is made."""
    with torch.device("meta"):
        network = make_network(variant, base_filters=base_filters, depth=4)
    assert sum(weight.numel() for weight in network.parameters()) == parameters


def test_deep_supervision_has_heads_at_half_a_quarter_and_an_eighth_in_training_only() -> None:
    """In evaluation there is one output, for ONNX as well."""
    network = make_network("v2", base_filters=2, depth=4)
    raw = torch.rand(1, 1, 32, 32, 32)
    assert [tuple(each.shape) for each in network(raw)] == [(1, 3, side, side, side) for side in (32, 16, 8, 4)]
    assert network.eval()(raw).shape == (1, 3, 32, 32, 32)


@pytest.mark.parametrize("variant", ["v1", "v3"])
def test_variants_without_deep_supervision_return_logits_of_the_patchs_size(variant: Variant) -> None:
    """In training and in evaluation."""
    network = make_network(variant, base_filters=2, depth=2)
    assert network(torch.rand(2, 1, 16, 16, 16)).shape == (2, 3, 16, 16, 16)


def test_crops_of_v3_are_the_middle_half_and_quarter() -> None:
    """Outside of the middle half only the first branch sees anything: the others' logits don't change."""
    network = make_network("v3", base_filters=2, depth=2).eval()
    raw = torch.rand(1, 1, 32, 32, 32)
    seen: dict[str, torch.Tensor] = {}
    for name in ("unet_128", "unet_64", "unet_32"):
        network.get_submodule(name).register_forward_pre_hook(
            lambda _module, args, name=name: seen.__setitem__(name, args[0])
        )
    network(raw)
    features = seen["unet_128"]
    assert torch.equal(seen["unet_64"], features[:, :, 8:24, 8:24, 8:24])
    assert torch.equal(seen["unet_32"], features[:, :, 12:20, 12:20, 12:20])


def test_logits_are_enlarged_as_torch_does_it() -> None:
    """Trilinear, values and gradients; sides of one voxel as well."""
    for shape, factor in (((2, 3, 2, 5, 4), 2), ((1, 3, 1, 3, 2), 4)):
        crop = torch.randn(shape, dtype=torch.float64, requires_grad=True)
        expected = functional.interpolate(crop, scale_factor=factor, mode="trilinear", align_corners=False)
        ours = enlarge(crop, factor)
        torch.testing.assert_close(ours, expected)
        weight = torch.randn_like(expected)
        gradients = [torch.autograd.grad((each * weight).sum(), crop)[0] for each in (ours, expected)]
        torch.testing.assert_close(*gradients)


def test_v3_can_be_trained_deterministically_on_a_gpu() -> None:
    """The gradient of torch's trilinear interpolation has no deterministic version there."""
    network = make_network("v3", base_filters=1, depth=2)
    with CountedOperations() as counted:
        network(torch.rand(1, 1, 16, 16, 16)).sum().backward()
    assert not [name for name in counted.calls if name.startswith("upsample") and name.endswith("backward")]


def test_blocks_are_the_stages_from_the_input_to_the_output() -> None:
    """Gradient checkpointing recomputes each of them."""
    network = make_network("v2", base_filters=2, depth=3)
    assert len(list_blocks(network)) == 1 + 2 + 1 + 3
    assert len(list_blocks(make_network("v3", base_filters=2, depth=3))) == 7 + 7 + 5


@pytest.mark.parametrize(
    ("variant", "patch", "depth", "fits"),
    [
        ("v2", 128, 4, True),
        ("v2", 32, 4, True),
        ("v2", 16, 4, False),  # one voxel is left, which can't be normalised
        ("v2", 100, 4, False),
        ("v3", 128, 4, True),
        ("v3", 64, 4, True),
        ("v3", 32, 4, False),
    ],
)
def test_patch_that_a_network_cannot_halve_is_refused(variant: Variant, patch: int, depth: int, fits: bool) -> None:
    """What is accepted can be trained on, and what is refused can't."""
    network = make_network(variant, base_filters=1, depth=depth)
    raw = torch.rand(1, 1, patch, patch, patch)
    if fits:
        check_patch(variant, patch=patch, depth=depth)
        if patch <= 64:
            network(raw)
        return
    with pytest.raises(BadRequestError, match=f"data.patch={patch} doesn't fit {variant}"):
        check_patch(variant, patch=patch, depth=depth)
    with pytest.raises((RuntimeError, ValueError)):
        network(raw)
