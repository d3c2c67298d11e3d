"""Counts a training step's floating-point operations, for the MFU in metrics.jsonl, without computing anything."""

import copy
from itertools import chain

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

# Shape legend: B batch.
# The backward pass takes twice as many as the forward pass: one product each for the gradients of inputs and of
# weights (Chowdhery et al., PaLM, 2022, appendix B).
PASSES = 3


def training_flops_per_sample(model: nn.Module, inputs: tuple[torch.Tensor, ...]) -> float:
    """Count the operations of one sample's forward and backward pass: matrix products and convolutions only.

    A copy on the meta device is counted: it takes no memory, and the model and the random generators don't change.

    Args:
        model: maps `inputs` to its output; as the recipe built it, neither sharded nor compiled.
        inputs: example inputs, batch first.

    Raises:
        Exception: whatever a model raises that can't be copied or can't compute on the meta device.
    """
    shadow = _copy_to_meta(model).eval()
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        shadow(*(tensor.to("meta") for tensor in inputs))
    return float(PASSES * counter.get_total_flops() / len(inputs[0]))


def utilisation(*, flops_per_sample: float, samples_per_second: float, peak_tflops: float, devices: int) -> float:
    """Compute the model FLOPs utilisation (MFU): the model's operations per second as a share of the devices' peak."""
    return flops_per_sample * samples_per_second / (peak_tflops * 1e12 * devices)


def _copy_to_meta(model: nn.Module) -> nn.Module:
    """Copy a model without copying its weights, which may be most of the memory."""
    known: dict[int, object] = {}
    for tensor in chain(model.parameters(), model.buffers()):
        meta = tensor.detach().to("meta")
        is_parameter = isinstance(tensor, nn.Parameter)
        known[id(tensor)] = nn.Parameter(meta, requires_grad=tensor.requires_grad) if is_parameter else meta
    return copy.deepcopy(model, known).to("meta")
